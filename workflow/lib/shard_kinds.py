"""The kinds of files that inference makes: where each lies, what it answers, and what it must say of itself.

Every such file states its kind, its model and the conditions that it was made under in its Parquet metadata, so that
one made on another machine can be recognised whatever it is called.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import items, logits, signal_parts
from workflow.lib.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes
    ----------
    place : str
        Path below the results; {shard} stands in it where a split is cut into shards.
    questions : str
        What is answered.
    fields : tuple of str
        Identity fields that must be equal in all shards of one split.
    columns : tuple of str
        Columns beside the key that a part of the signals has; () for files of the logits contract.
    """

    place: str
    questions: str = "<results>/items/{split}.parquet"
    fields: tuple[str, ...] = logits.MOVES_A_LOGIT
    columns: tuple[str, ...] = ()


PART_FIELDS = (*signal_parts.AGREE, "shards", "measured")
KINDS = {
    "logits": Kind("logits/{model}/{split}/{shard}.parquet"),
    "noise": Kind("noise/{noise}/{model}/{split}/{shard}.parquet"),
    "template": Kind("templates/{model}/{template}/logits.parquet", "<results>/templates/questions.parquet"),
    "engine": Kind("engines/{model}.parquet", "<results>/engines/questions.parquet"),
    "signals": Kind(
        "signal_shards/{model}/{split}/{shard}.parquet",
        fields=PART_FIELDS,
        columns=("yes_max", "no_max", *signal_parts.ATTENTION),
    ),
    "clip": Kind("clip/{model}/{split}.parquet", fields=PART_FIELDS, columns=("noun",)),
}


@dataclass(frozen=True)
class Slot:
    """A file, or the shards of one, that the configuration asks for.

    Attributes
    ----------
    kind, model, split, noise, template : str
        By which it is found; "" where a kind has no such thing.
    place : str
        Path, with {shard} where the split is cut.
    questions : str
        Path of the items that it answers.
    expected, measured : mapping
        Fields that the configuration fixes: of the identity, and of its ``measured``.
    """

    kind: str
    model: str
    split: str
    place: str
    questions: str
    expected: Mapping
    noise: str = ""
    template: str = ""
    measured: Mapping | None = None


_SETTINGS = {
    "kind": "known",
    "model": "in run.models",
    "split": "in run.splits, or not asked of this kind",
    "noise": "a kind of noise",
    "template": "a template of that model",
}


def stated_identity(path: Path) -> dict:
    """Return what a file says of itself, without its rows; a file from before kinds were stated holds logits.

    Raises
    ------
    BadInput
        Where it is no whole Parquet file, or states nothing.
    """
    try:
        stored = (pq.read_schema(path).metadata or {}).get(logits.METADATA_KEY)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a whole Parquet file ({error}): copy it again.") from None
    if stored is None:
        raise BadInput(f"{path} carries no identity in its metadata: it was not written by this pipeline.")
    identity = json.loads(stored)
    return {"kind": "logits", "noise": "", "template": ""} | identity


def slot_of(path: Path, identity: Mapping, slots: Sequence[Slot]) -> Slot:
    """Return the slot that a file fits by what it says of itself.

    Raises
    ------
    BadInput
        Names the first of kind, model, split, noise and template that the configuration does not have.
    """
    left = list(slots)
    for field, place in _SETTINGS.items():
        # only of this kind does the template tell files apart; elsewhere it is a condition like any other
        if field == "template" and identity["kind"] != "template":
            continue
        found = identity.get(field, "")
        known = list(dict.fromkeys(getattr(slot, field) for slot in left))
        left = [slot for slot in left if getattr(slot, field) == found]
        if not left:
            raise BadInput(f"{path}: {field} {found!r} is not {place} ({', '.join(map(str, known))}).")
    return left[0]


def read(path: Path, identity: Mapping) -> tuple[pa.Table, dict]:
    """Return rows and identity of a file of any kind, checked by the contract of that kind.

    Raises
    ------
    BadInput
        One sentence that names the file and the column or row.
    """
    kind = KINDS[identity["kind"]]
    if not kind.columns:
        held = logits.read(path)
        return held.table, held.identity
    table = pq.ParquetFile(path).read()
    similarities = [name for names in signal_parts.SIMILARITIES.values() for name in names]
    for name in (*items.KEY, *kind.columns):
        if name not in table.column_names:
            raise BadInput(f"{path} has no column {name!r}: run it again.")
    for field in (*PART_FIELDS,) if identity["kind"] == "signals" else (*signal_parts.AGREE, "measured", "missing"):
        if field not in identity:
            raise BadInput(f"{path} lacks {field} in its metadata: it was not written by this pipeline.")
    for name in table.column_names:
        numeric = name in similarities or (name in kind.columns and name != "noun")
        if table[name].null_count:
            raise BadInput(f"{path}: column {name!r} has missing values: run it again.")
        if numeric and not np.isfinite(table[name].to_numpy()).all():
            row = int(np.flatnonzero(~np.isfinite(table[name].to_numpy()))[0])
            raise BadInput(f"{path} row {row}: {name} is not a finite number: run it again.")
    return table, dict(identity)


def check_conditions(path: Path, identity: Mapping, slot: Slot, more: Mapping, may_differ: Sequence[str]) -> None:
    """Refuse a file that was not made under the conditions of the configuration.

    Parameters
    ----------
    more : mapping
        Further fields that are known here, such as the digest of the questions.
    """
    wanted = {**slot.expected, **more}
    pairs = [(field, identity.get(field), value) for field, value in wanted.items()]
    measured = identity.get("measured", {})
    pairs += [(f"measured.{field}", measured.get(field), value) for field, value in (slot.measured or {}).items()]
    for field, found, value in pairs:
        if field not in may_differ and found != value:
            raise BadInput(
                f"{path} was made with {field} {found!r} where the configuration says {value!r}: run it under this "
                "configuration, or change the configuration."
            )


def check_rows(path: Path, table: pa.Table, identity: Mapping, questions: pa.Table) -> None:
    """Refuse a file that answers other questions than are asked in its shard, or asks about other images."""
    shard, shards = identity.get("shard", 0), identity.get("shards", 1)
    if shard not in range(shards):
        raise BadInput(f"{path} is shard {shard!r} of {shards}: only single shards are imported, nothing merged.")
    rows = questions.take(items.shard_rows(questions["image"].to_pylist(), shard, shards))
    for column in (*items.KEY, "image"):
        if column not in table.column_names:
            continue
        ours, theirs = rows[column].to_pylist(), table[column].to_pylist()
        if ours != theirs:
            row = next((row for row, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(theirs))
            have = repr(theirs[row]) if row < len(theirs) else "no row"
            want = repr(ours[row]) if row < len(ours) else "none"
            raise BadInput(
                f"{path} row {row}: {column} {have} where {want} is asked in shard {shard} of {shards}: it answers "
                "other questions than the items."
            )
