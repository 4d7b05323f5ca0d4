"""Shards that another machine made: checked like our own, then put where inference would have put them.

Nothing is put in place before every shard of the folder has passed. A shard that was put in place has a note beside
it, ``N.imported.json`` with its SHA-256. While the note fits the file, the workflow declares no inputs for that shard:

- Snakemake keeps no record of a file that it did not make, so changed parameters do not rerun it (the merge compares
  its identity with the configuration instead);
- but without a record it compares inputs by time only, and a checkpoint that is fetched later, for other shards, is
  newer, or is "updated by another job". ``ancient`` does not help against the latter where the checkpoint is still
  absent, and where it is there it hides that a parameter changed. (All of this observed with Snakemake 9.27.1.)

A record of an earlier run of the same shard is removed, because it would have another set of inputs.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from workflow.lib import files, items, logits
from workflow.lib.errors import BadInput

HASH_ENDING = ".sha256"
NOTE_ENDING = ".imported.json"


@dataclass(frozen=True)
class Expected:
    """What shards must fit.

    Attributes
    ----------
    identities : mapping
        Model -> identity fields that the configuration fixes.
    questions : mapping
        Split -> items and the metadata of their file.
    images_sha256 : str
        Digest of the table of images, "" where it was not fetched here.
    may_differ : sequence of str
        Fields in which shards of one split may differ.
    place : callable
        ``place(model, split, shard)`` is the path of a shard.
    """

    identities: Mapping[str, Mapping]
    questions: Mapping[str, tuple[pa.Table, Mapping]]
    images_sha256: str
    may_differ: Sequence[str]
    place: Callable[[str, str, int], Path]


@dataclass(frozen=True)
class Found:
    """A shard that passed, where it goes, and whether the same bytes are there already."""

    path: Path
    target: Path
    present: bool


def stated_hash(path: Path) -> str:
    """Return the SHA-256 in the file beside a shard, as sha256sum writes it: the hash, then the name."""
    beside = path.with_name(path.name + HASH_ENDING)
    if not beside.is_file():
        raise BadInput(
            f"{path} has no {beside.name} beside it, so a cut copy cannot be told from a whole one: fetch that file "
            f"too, or make it where the shard was made (sha256sum {path.name} > {beside.name})."
        )
    return (beside.read_text(encoding="utf-8").split() or [""])[0]


def verify(folder: str | Path, expected: Expected) -> list[Found]:
    """Check every shard below a folder, each alone and with those of its split that are in place or come along.

    Raises
    ------
    BadInput
        Names the file and the differing field, row or hash; nothing was put in place then.
    """
    folder = Path(folder)
    if not str(folder).strip(".") or not folder.is_dir():
        raise BadInput(f"shards is {str(folder)!r}, which is no folder: name one with --config shards=FOLDER.")
    paths = sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith("."))
    if not paths:
        raise BadInput(f"{folder} holds no *.parquet file: put the shards there, each beside its {HASH_ENDING} file.")
    found, first = [], {}
    for path in paths:
        digest, stated = files.sha256(path), stated_hash(path)
        if digest != stated:
            raise BadInput(f"{path} has SHA-256 {digest} where {stated} stands beside it: copy it again.")
        shard = logits.read(path)
        _fits(path, shard, expected)
        identity = shard.identity
        key = (identity["model"], identity["split"])
        target = expected.place(*key, identity["shard"])
        present = target.is_file()
        if present and files.sha256(target) != digest:
            raise BadInput(f"{path} is not the {target} that is there already: delete the one that you do not want.")
        if any(other.target == target for other in found):
            raise BadInput(f"{path} is one of two files for {target}: leave one of them in {folder}.")
        if key not in first:
            first[key] = _neighbour(expected, key, identity["shards"], target) or (path, identity)
        fields = logits.differing(first[key][1], identity, expected.may_differ)
        if fields:
            raise BadInput(
                f"{path} and {first[key][0]} do not belong together ({'; '.join(fields)}): run one of them again under "
                "the other's conditions, or name harmless fields in run.may_differ."
            )
        found.append(Found(path, target, present))
    return found


def _fits(path: Path, shard: logits.Logits, expected: Expected) -> None:
    identity = shard.identity
    if identity["model"] not in expected.identities:
        raise BadInput(f"{path}: model {identity['model']!r} is not in run.models ({', '.join(expected.identities)}).")
    if identity["split"] not in expected.questions:
        raise BadInput(f"{path}: split {identity['split']!r} is not in run.splits ({', '.join(expected.questions)}).")
    questions, origin = expected.questions[identity["split"]]
    wanted = dict(expected.identities[identity["model"]])
    wanted["dataset_sha256"] = origin["sha256"]
    if expected.images_sha256:
        wanted["images_sha256"] = expected.images_sha256
    for field, value in wanted.items():
        if field not in expected.may_differ and identity[field] != value:
            raise BadInput(
                f"{path} was made with {field} {identity[field]!r} where the configuration says {value!r}: run it "
                "under this configuration, or change the configuration."
            )
    rows = questions.take(items.shard_rows(questions["image"].to_pylist(), identity["shard"], identity["shards"]))
    for column in ("dataset", "split", "id", "image"):
        ours, theirs = rows[column].to_pylist(), shard.table[column].to_pylist()
        if ours != theirs:
            row = next((row for row, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(theirs))
            have = repr(theirs[row]) if row < len(theirs) else "no row"
            want = repr(ours[row]) if row < len(ours) else "none"
            raise BadInput(
                f"{path} row {row}: {column} {have} where {want} is asked in shard {identity['shard']} of "
                f"{identity['shards']}: it answers other questions than the items."
            )


def _neighbour(expected: Expected, key: tuple[str, str], shards: int, but: Path) -> tuple[Path, dict] | None:
    for number in range(shards):
        path = expected.place(*key, number)
        if path != but and path.is_file():
            return path, logits.read(path).identity
    return None


def note_of(shard: Path) -> Path:
    """Return where the note of an imported shard lies."""
    return shard.with_suffix(NOTE_ENDING)


def is_imported(shard: Path) -> bool:
    """Return whether a shard is one that was put in place, and not one that was made here since."""
    note = note_of(shard)
    return note.is_file() and shard.is_file() and files.read_json(note)["sha256"] == files.sha256(shard)


def put_in_place(found: Sequence[Found]) -> list[Path]:
    """Copy verified shards to their places, whole or not at all, and return the places that are new."""
    placed = [shard for shard in found if not shard.present]
    for shard in placed:
        with files.write_atomically(shard.target) as temporary:
            shutil.copyfile(shard.path, temporary)
        files.write_json({"file": shard.path.name, "sha256": files.sha256(shard.target)}, note_of(shard.target))
    return [shard.target for shard in placed]


def forget(targets: Sequence[Path]) -> None:
    """Remove Snakemake's records of earlier runs of these files, in the current folder."""
    if targets and Path(".snakemake/metadata").is_dir():
        command = [sys.executable, "-m", "snakemake", "--cleanup-metadata", *map(str, targets)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode and "metadata was not present" not in done.stderr:
            raise OSError(f"snakemake --cleanup-metadata failed: {done.stderr}")
