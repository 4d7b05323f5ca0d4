"""Fetching jobs of the full study, with progress: questions, images, and (`workflow.models.hub`) checkpoints."""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from workflow.lib import coco_images, downloads, files, sources
from workflow.lib.errors import BadInput
from workflow.models import hub

RECORD = "source.json"
"""Beside the images: where they were taken from, so that images of two sources never mix."""


def fetch_questions(source: Mapping, out: str, local_folder: str = "", offline: bool = False) -> None:
    """Bring one question file to its place, from a local folder that holds it, else from its address.

    Raises
    ------
    BadInput
        As `workflow.lib.sources.fetch`; offline it says where the file may be put.
    """
    wanted = sources.Source(**source)
    held = local_folder and any(path.is_file() for path in sources.candidates(wanted, local_folder))
    if not held and offline:
        searched = " or ".join(str(path) for path in sources.candidates(wanted, local_folder or "FOLDER")[:3])
        raise BadInput(
            f"{wanted.basename} of revision {wanted.revision[:7]} is missing and offline is true: put it at {searched}"
            f"{'' if local_folder else ' and name the folder with --config local_folder=FOLDER'}."
        )
    sources.fetch(wanted, out, local_folder if held else None, opener=downloads.open_address)


def fetch_images(
    items_paths: list[str],
    table: str,
    *,
    way: str,
    origin: Mapping,
    local_folder: str = "",
    offline: bool = False,
    **ways: object,
) -> None:
    """Bring the images that the items name to ``images/`` beside the table, and write the table of their hashes.

    Images that are there are kept, so that a killed run is continued; those of another source are fetched again.

    Parameters
    ----------
    way : str
        "coco" (one file an image), "coco_archive" (the archive of val2014, 6.6 GB) or "hub" (Parquet files that embed
        them).
    origin : mapping
        ``url`` and, for the hub, ``repository`` and ``revision`` of that source.

    Raises
    ------
    BadInput
        Names the images, the questions that they affect and what to do; no table is written then.
    """
    folder = Path(table).parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = coco_images.needed(items_paths)
    record = {"way": way, **origin}
    kept = offline or not (folder.parent / RECORD).exists() or coco_images.same_record(folder.parent / RECORD, record)
    absent = []
    for name in wanted:
        path = folder / name
        if not (kept and path.is_file() and not coco_images.jpeg_problem(path)):
            path.unlink(missing_ok=True)
            copy = coco_images.local_copy(name, local_folder)
            if copy:
                coco_images.keep(copy.read_bytes(), path, str(copy))
            else:
                absent.append(name)
    if not kept:
        (folder.parent / RECORD).unlink()
    archive = Path(local_folder, "val2014.zip") if local_folder else None
    with tqdm(total=len(wanted), initial=len(wanted) - len(absent), unit="image", desc=way, mininterval=2) as bar:
        if absent and archive and archive.is_file():
            for _ in coco_images.from_archive(archive, absent, folder):
                bar.update(1)
            absent = []
        if absent and offline:
            first = absent[0]
            raise BadInput(
                f"{len(absent)} images are missing and offline is true, first {first} "
                f"({coco_images.affected(wanted[first])} need it): put the images of COCO val2014 into {folder}, or "
                "val2014.zip into a folder named with --config local_folder=FOLDER."
            )
        if absent:
            files.write_json(record, folder.parent / RECORD)
            try:
                WAYS[way](absent, items_paths, folder, origin, bar.update, ways)
            except BadInput as problem:
                name = next((name for name in absent if not (folder / name).is_file()), absent[-1])
                raise BadInput(f"{problem} ({coco_images.affected(wanted[name])} need {name}.)") from None
    with tqdm(total=len(wanted), unit="image", desc="hashes", mininterval=2) as bar:
        coco_images.write_table(list(wanted), folder, table, bar.update)


def _one_by_one(absent: list[str], _: list[str], folder: Path, origin: Mapping, done: Callable, ways: Mapping) -> None:
    for name in absent:
        downloads.download(
            f"{origin['url']}/{name}",
            folder / name,
            check=coco_images.jpeg_problem,
            remedy=f"put the image at {folder / name}, or choose another source with sources.images",
            **ways,
        )
        done(1)


def _archive(absent: list[str], _: list[str], folder: Path, origin: Mapping, done: Callable, ways: Mapping) -> None:
    archive = folder.parent / "val2014.zip"
    if not archive.is_file():
        with tqdm(unit="B", unit_scale=True, desc=archive.name, mininterval=2) as bar:
            downloads.download(
                origin["url"],
                archive,
                progress=bar.update,
                remedy="run the same command again, or put val2014.zip into a folder named with local_folder",
                **ways,
            )
    for _ in coco_images.from_archive(archive, absent, folder):
        done(1)
    archive.unlink()


def _hub(
    absent: list[str], items_paths: list[str], folder: Path, origin: Mapping, done: Callable, ways: Mapping
) -> None:
    repository, revision = origin["repository"], origin["revision"]
    left, stage = set(absent), folder.parent / "hub"
    entries = hub.listing(repository, revision, "dataset")
    for split, wanted in coco_images.asked(items_paths).items():
        named = [entry for entry in entries if PurePosixPath(entry.path).match(f"Full/{split}-*.parquet")]
        if left and not named:
            raise BadInput(f"{repository} has no Full/{split}-*.parquet at revision {revision[:7]}.")
        for entry in named if left else []:
            hub.fetch_files(repository, revision, [entry], stage, kind="dataset", **ways)
            for _ in coco_images.from_records(stage / entry.path, split, wanted, left, folder):
                done(1)
            (stage / entry.path).unlink()
    if left:
        raise BadInput(f"{repository} lacks {len(left)} images, first {min(left)}: set sources.images to coco.")


WAYS = {"coco": _one_by_one, "coco_archive": _archive, "hub": _hub}
