"""Shards that another machine made: checked like our own, then put where inference would have put them.

All kinds of files that inference makes are taken (`workflow.lib.shard_kinds`), here called shards. Nothing is put in
place before every shard of the folder has passed. A shard that was put in place has a note beside it,
``N.imported.json`` with its SHA-256. While the note fits the file, the workflow declares no inputs for that shard:

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from workflow.lib import files, logits, shard_kinds
from workflow.lib.errors import BadInput
from workflow.lib.shard_kinds import KINDS, Slot

HASH_ENDING = ".sha256"
NOTE_ENDING = ".imported.json"


@dataclass(frozen=True)
class Expected:
    """What shards must fit.

    Attributes
    ----------
    slots : sequence of Slot
        The files that the configuration asks for.
    questions : mapping
        Path of items -> items and the metadata of their file.
    images_sha256 : str
        Digest of the table of images, "" where it was not fetched here.
    may_differ : sequence of str
        Fields in which shards of one split may differ.
    """

    slots: Sequence[Slot]
    questions: Mapping[str, tuple[pa.Table, Mapping]]
    images_sha256: str
    may_differ: Sequence[str]


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
    found: list[Found] = []
    first: dict[str, tuple[Path, Mapping]] = {}
    for path in paths:
        digest, stated = files.sha256(path), stated_hash(path)
        if digest != stated:
            raise BadInput(f"{path} has SHA-256 {digest} where {stated} stands beside it: copy it again.")
        said = shard_kinds.stated_identity(path)
        slot = shard_kinds.slot_of(path, said, expected.slots)
        table, identity = shard_kinds.read(path, said)
        questions, origin = expected.questions[slot.questions]
        more = {"dataset_sha256": origin["sha256"]}
        if expected.images_sha256:
            more["images_sha256"] = expected.images_sha256
        shard_kinds.check_conditions(path, identity, slot, more, expected.may_differ)
        shard_kinds.check_rows(path, table, identity, questions)
        target = Path(slot.place.format(shard=identity.get("shard")))
        present = target.is_file()
        if present and files.sha256(target) != digest:
            raise BadInput(f"{path} is not the {target} that is there already: delete the one that you do not want.")
        if any(other.target == target for other in found):
            raise BadInput(f"{path} is one of two files for {target}: leave one of them in {folder}.")
        if slot.place not in first:
            first[slot.place] = _neighbour(slot, identity, target) or (path, identity)
        neighbour, other = first[slot.place]
        fields = logits.differing(other, identity, expected.may_differ, KINDS[slot.kind].fields)
        if fields:
            raise BadInput(
                f"{path} and {neighbour} do not belong together ({'; '.join(fields)}): run one of them again under "
                "the other's conditions, or name harmless fields in run.may_differ."
            )
        found.append(Found(path, target, present))
    return found


def _neighbour(slot: Slot, identity: Mapping, but: Path) -> tuple[Path, Mapping] | None:
    for number in range(identity.get("shards", 1)):
        path = Path(slot.place.format(shard=number))
        if path != but and path.is_file():
            return path, shard_kinds.stated_identity(path)
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
