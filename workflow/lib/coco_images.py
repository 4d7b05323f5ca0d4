"""The images that questions ask about: which are needed, whether a file is whole, and the table of their hashes.

Images come from the COCO server one by one, from the archive of all val2014 images, or from a data set on the hub
that embeds them as JPEG bytes. Only what the items name is kept.
"""

import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files, items
from workflow.lib.errors import BadInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MEMBER = "val2014/"
"""Folder of the images inside COCO's archive."""


def needed(paths: Sequence[str | Path]) -> dict[str, list[str]]:
    """Return the image names of all items, sorted, each with the questions that ask about it ("random 17")."""
    found: dict[str, list[str]] = {}
    for path in paths:
        table, _ = items.load(path)
        for row in table.select(["image", "split", "id"]).to_pylist():
            if not _NAME.fullmatch(row["image"]):
                raise BadInput(
                    f"{path}: image {row['image']!r} of question {row['id']} is no plain file name: correct it."
                )
            found.setdefault(row["image"], []).append(f"{row['split']} {row['id']}")
    return dict(sorted(found.items()))


def affected(questions: Sequence[str]) -> str:
    """Return the list of questions for a message, at most the first twelve."""
    more = f" and {len(questions) - 12} more" if len(questions) > 12 else ""
    return f"questions {', '.join(questions[:12])}{more}"


def jpeg_problem(path: Path) -> str:
    """Return "" where a file begins and ends as a JPEG does, else what is wrong.

    COCO publishes no hash of single images; their number of bytes is compared with the server's, and the end
    marker is looked for, because a cut JPEG still opens in most viewers.
    """
    content = path.read_bytes()
    if not content.startswith(b"\xff\xd8\xff"):
        return "is not a JPEG image"
    if b"\xff\xd9" not in content[-4096:]:
        return "is a JPEG image without its end, so it was cut"
    return ""


def local_copy(name: str, folder: str | Path) -> Path | None:
    """Return an image in a local folder: FOLDER/NAME, FOLDER/val2014/NAME or FOLDER/images/NAME."""
    if not folder:
        return None
    places = [Path(folder, name), Path(folder, "val2014", name), Path(folder, "images", name)]
    return next((place for place in places if place.is_file()), None)


def keep(content: bytes, path: Path, origin: str) -> None:
    """Write an image under its name after the check; BadInput names where it came from."""
    with files.write_atomically(path) as temporary:
        temporary.write_bytes(content)
        problem = jpeg_problem(temporary)
        if problem:
            raise BadInput(f"{path.name} in {origin} {problem}: fetch or copy {origin} again.")


def from_archive(archive: Path, names: Sequence[str], folder: Path) -> Iterator[str]:
    """Take images out of COCO's archive, one name at a time; the archive's own checksums are checked.

    Raises
    ------
    BadInput
        The archive is cut or damaged, or has no such image.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            held = set(opened.namelist())
            for name in names:
                member = next((found for found in (f"{_MEMBER}{name}", name) if found in held), None)
                if member is None:
                    raise BadInput(f"{archive} holds no {name}: it is not the archive of COCO val2014.")
                keep(opened.read(member), folder / name, str(archive))
                yield name
    except zipfile.BadZipFile as error:
        raise BadInput(f"{archive} is not a whole archive ({error}): delete it and fetch it again.") from None


def from_records(
    path: Path, split: str, wanted: Mapping[int, tuple[str, str]], names: set[str], folder: Path
) -> Iterator[str]:
    """Take images out of a Parquet file of the hub's POPE data set, one name at a time.

    Parameters
    ----------
    path : Path
        One split; columns question_id, question, answer, image (a struct with the JPEG's bytes) and, where there is
        one, image_source (the image's name without its ending).
    split : str
        For messages.
    wanted : mapping
        Question id -> (image name, question) as the items have them. A row is taken only where its question is the
        same but for the misspelt "imange"; ids alone were numbered differently in other revisions.
    names : set of str
        Image names still to be found.
    folder : Path
        Where images are written.

    Raises
    ------
    BadInput
        A column is missing, or a question or image name is another than the items have.
    """
    try:
        opened = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a whole Parquet file ({error}): delete it and fetch it again.") from None
    for column in ("question_id", "question", "image"):
        if column not in opened.schema_arrow.names:
            raise BadInput(f"{path} has no column {column!r}: the data set has another layout than this revision's.")
    named = "image_source" in opened.schema_arrow.names
    columns = ["question_id", "question", "image", *(["image_source"] if named else [])]
    for batch in opened.iter_batches(batch_size=60, columns=columns):
        for row in batch.to_pylist():
            number = int(row["question_id"])
            name, question = wanted.get(number, ("", ""))
            if name not in names:
                continue
            if _plain(row["question"]) != _plain(question):
                raise BadInput(
                    f"{path}: question {number} of {split} is {row['question']!r} where the items have {question!r}: "
                    "the two are of different revisions."
                )
            if named and Path(str(row["image_source"])).stem != Path(name).stem:
                raise BadInput(
                    f"{path}: question {number} of {split} shows {row['image_source']} where {name} is asked."
                )
            keep(row["image"]["bytes"], folder / name, str(path))
            names.discard(name)
            yield name


def _plain(question: str) -> str:
    return " ".join(question.lower().replace("imange", "image").split())


def write_table(names: Sequence[str], folder: Path, out: str | Path, progress: Callable[[int], object]) -> None:
    """Write the table of images, columns image and sha256, sorted by name."""
    lines = ["image,sha256"]
    for name in sorted(names):
        lines.append(f"{name},{files.sha256(folder / name)}")
        progress(1)
    files.write_text("\n".join(lines) + "\n", out)


def asked(paths: Sequence[str | Path]) -> dict[str, dict[int, tuple[str, str]]]:
    """Return split -> question id -> (image, question) of several item files."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for path in paths:
        table, _ = items.load(path)
        for row in table.to_pylist():
            found.setdefault(row["split"], {})[row["id"]] = (row["image"], row["question"])
    return found


def same_record(path: Path, record: Mapping) -> bool:
    """Return whether a small JSON record beside fetched files says the same; False where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) == dict(record)
    except (OSError, ValueError):
        return False
