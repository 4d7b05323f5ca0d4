"""The answers table: one row per question and readout."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files, items, readouts
from workflow.lib.errors import BadInput
from workflow.lib.logits import Logits
from workflow.lib.logits import read as read_logits
from workflow.lib.tokens import TokenSet

METADATA_KEY = b"readout_audit"
SCHEMA = pa.schema(
    [
        *items.KEY_FIELDS,
        pa.field("label", pa.string(), nullable=False),
        pa.field("emitted_id", pa.int32(), nullable=False),
        pa.field("emitted_text", pa.string(), nullable=False),
        pa.field("readout", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("tie", pa.bool_(), nullable=False),
        pa.field("margin", pa.float32()),
    ]
)


@dataclass(frozen=True)
class StoredView:
    """Merged logits beside their labels, as `readouts.LogitsView` asks for them."""

    ids: Sequence[int]
    logits: np.ndarray
    generated_text: Sequence[str]
    returned_text: Sequence[str]
    labels: Sequence[str]
    dynamic: TokenSet | None
    source: str


def read_all(
    logits: Logits, questions: pa.Table, names: Sequence[str], precision: str, source: str
) -> tuple[pa.Table, list[str]]:
    """Apply readouts to one merged split.

    Parameters
    ----------
    logits : Logits
        Merged split, in the order of the items.
    questions : pyarrow.Table
        Its items; the keys must be the same in the same order.
    names : sequence of str
        Readouts in the order in which the table lists them.
    precision : str
        Format to which logits are rounded first (`readouts.PRECISIONS`).
    source : str
        File name, for messages.

    Returns
    -------
    table : pyarrow.Table
        Rows by readout, then by question; schema `SCHEMA`.
    warnings : list of str
        One sentence for each token-set readout whose set misses tokens that the model emitted.
    """
    for name in ("dataset", "split", "id"):
        if not logits.table[name].equals(questions[name]):
            raise BadInput(f"{source}: its questions are not those of the items: merge the shards again.")
    held = logits.identity["token_sets"].get("dynamic_single")
    view = StoredView(
        logits.candidate_ids,
        logits.candidate_logits,
        logits.table["generated_text"].to_pylist(),
        logits.table["returned_text"].to_pylist(),
        questions["label"].to_pylist(),
        TokenSet(tuple(held["yes"]), tuple(held["no"])) if held else None,
        source,
    )
    shared = pd.DataFrame(
        {
            "dataset": questions["dataset"].to_pylist(),
            "split": questions["split"].to_pylist(),
            "id": questions["id"].to_numpy(),
            "label": questions["label"].to_pylist(),
            "emitted_id": logits.table["argmax_id"].to_numpy(),
            "emitted_text": logits.table["argmax_text"].to_pylist(),
        }
    )
    frames, warnings = [], []
    for name in names:
        frames.append(pd.concat([shared, readouts.read(name, view, precision).frame()], axis=1))
        readout = readouts.get(name)
        if readout.kind == "token_set":
            token_set = readouts.resolved(readout, view)
            warnings += readouts.warnings_for(name, shared["emitted_id"].tolist(), token_set)
    return to_table(pd.concat(frames, ignore_index=True)), warnings


def from_logits(
    logits: str | Path, questions: str | Path, names: Sequence[str], precision: str, **labels: str
) -> tuple[pa.Table, dict]:
    """Apply readouts to a file of logits; return the answers and the metadata to save with them.

    ``labels`` (study, model and the like) become part of the metadata; the other arguments are those of `read_all`.
    """
    stored = read_logits(logits)
    table, warnings = read_all(stored, items.load(questions)[0], names, precision, str(logits))
    metadata = labels | {
        "basis": "logits",
        "precision": precision,
        "dynamic": stored.identity["token_sets"]["dynamic_single"],
        "candidate_ids": list(stored.candidate_ids),
        "candidate_texts": stored.identity["candidate_texts"],
        "warnings": warnings,
    }
    return table, metadata


def to_table(frame: pd.DataFrame) -> pa.Table:
    """Return a frame with the columns of `SCHEMA` as a table of that schema."""
    return pa.Table.from_pandas(frame[SCHEMA.names], schema=SCHEMA, preserve_index=False).replace_schema_metadata(None)


def save(table: pa.Table, path: str | Path, metadata: dict) -> None:
    """Write answers; ``metadata`` holds at least study, model and basis (where the answers come from)."""
    stored = table.cast(SCHEMA).replace_schema_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()})
    with files.write_atomically(path) as temporary:
        pq.write_table(stored, temporary)


def load(path: str | Path) -> tuple[pd.DataFrame, dict]:
    """Return the rows and the metadata of an answers file; BadInput where it is not one."""
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a readable Parquet file ({error}): rebuild it.") from None
    for field in SCHEMA:
        if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
            raise BadInput(f"{path} has no column {field.name!r} of type {field.type}: rebuild the answers.")
    metadata = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return table.select(SCHEMA.names).to_pandas(), metadata
