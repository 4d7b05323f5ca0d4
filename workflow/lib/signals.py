"""The signals table: what was measured beside the logits of each question, and the groups it is compared in."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files, items
from workflow.lib.errors import BadInput

METADATA_KEY = b"readout_audit"
SCHEMA = pa.schema(
    [
        *items.KEY_FIELDS,
        pa.field("label", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("yes_max", pa.float32(), nullable=False),
        pa.field("no_max", pa.float32(), nullable=False),
    ]
)
"""Columns that every file has. ``answer`` is the baseline of the instrumented pass; ``yes_max`` and ``no_max``
are the maxima of the two sides of the token set that it was read from (eight-token for LLaMA vocabularies,
tokenizer-derived elsewhere)."""

CERTAINTIES = (
    "clip_b_certainty",
    "clip_l_certainty",
    "entropy_certainty",
    "object_noun_certainty",
    "magnitude_certainty",
    "cls_certainty",
    "midpoint_certainty",
    "clip_b_certainty_paper",
    "entropy_certainty_paper",
    "object_noun_certainty_paper",
    "magnitude_certainty_paper",
    "cls_certainty_paper",
)
"""Certainties from 0 to 1 that a gate can be keyed on. Those ending in ``_paper`` follow the paper's wording
where it differs from what was run; `workflow.lib.corrections.METHODS` says how."""
CONTRASTS = ("vcd_yes_max", "vcd_no_max", "vcd_yes_max_paper", "vcd_no_max_paper")
"""Maxima of the same token set in a second pass on a noisy image."""
OPTIONAL = ("attention", "clip_l_similarity", *CERTAINTIES, *CONTRASTS)
"""Columns, all float32, that a study has or has not."""

LOGIT_GAP = "logit_gap"
"""Name of the signal |yes_max - no_max|, which is not stored."""
GROUPS = ("TP", "FP", "TN", "FN", "correct", "wrong")
"""Outcome groups of the baseline answer."""
PAIRS = (("correct", "wrong"), ("TP", "FP"), ("TN", "FN"), ("TP", "FN"), ("TN", "FP"))
"""Group pairs in the order in which they were compared (first paper, Appendix F.3): the first is group a of a
difference, of Cohen's d and of U."""


def save(frame: pd.DataFrame, path: str | Path, metadata: dict) -> None:
    """Write signals as Parquet.

    Parameters
    ----------
    frame : pandas.DataFrame
        The columns of `SCHEMA` and any of `OPTIONAL`, one row a question.
    path : path
    metadata : dict
        JSON values; at least study, model, split and basis ("model" or "released records").

    Raises
    ------
    BadInput
        A missing or unknown column, a value that is missing, NaN or infinite, a certainty outside 0 to 1, a
        label or answer that is neither yes nor no, a repeated id, or another split than the metadata names.
    """
    for name in frame.columns:
        if name not in SCHEMA.names and name not in OPTIONAL:
            raise BadInput(f"{path}: signal {name!r} is not known: use one of {', '.join(OPTIONAL)}.")
    check(frame, metadata, str(path))
    stored = [*SCHEMA, *(pa.field(name, pa.float32(), nullable=False) for name in OPTIONAL if name in frame)]
    schema = pa.schema(stored)
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()})
    with files.write_atomically(path) as temporary:
        pq.write_table(table, temporary)


def load(path: str | Path) -> tuple[pd.DataFrame, dict]:
    """Return the signals and the metadata of a file; BadInput where it breaks what `save` ensures."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a readable Parquet file ({error}): rebuild it.") from None
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    if stored is None:
        raise BadInput(f"{path} has no metadata: it holds no signals of this pipeline, so rebuild it.")
    for field in (
        *SCHEMA,
        *(pa.field(name, pa.float32()) for name in OPTIONAL if name in table.column_names),
    ):
        if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
            raise BadInput(f"{path} has no column {field.name!r} of type {field.type}: rebuild the signals.")
    frame, metadata = table.to_pandas(), json.loads(stored)
    check(frame, metadata, str(path))
    return frame, metadata


def check(frame: pd.DataFrame, metadata: dict, name: str) -> None:
    """Refuse signals that break the contract; see `save`. ``name`` begins the message."""
    for field in ("study", "model", "split", "basis"):
        if field not in metadata:
            raise BadInput(f"{name} lacks {field} in its metadata: rebuild the signals.")
    for column in SCHEMA.names:
        if column not in frame:
            raise BadInput(f"{name} has no column {column!r}: rebuild the signals.")
    for column in ("label", "answer"):
        wrong = ~frame[column].isin(["yes", "no"])
        if wrong.any():
            row = frame[wrong].iloc[0]
            raise BadInput(
                f"{name} id {row['id']}: {column} is {row[column]!r} where yes or no is expected: rebuild the signals."
            )
    if (frame["split"] != metadata["split"]).any():
        raise BadInput(f"{name} holds another split than {metadata['split']!r}: one file holds one split.")
    if frame["id"].duplicated().any():
        repeated = frame.loc[frame["id"].duplicated(), "id"].iloc[0]
        raise BadInput(f"{name}: id {repeated} occurs more than once: rebuild the signals.")
    for column in ("yes_max", "no_max", *(optional for optional in OPTIONAL if optional in frame)):
        numbers = frame[column].to_numpy(np.float64, na_value=np.nan)
        bad = ~np.isfinite(numbers)
        if bad.any():
            raise BadInput(
                f"{name} id {frame['id'][bad].iloc[0]}: {column} is {numbers[bad][0]} where a finite number is "
                "expected: leave out a signal that a study does not have, else measure it again."
            )
        outside = (numbers < 0) | (numbers > 1)
        if column in CERTAINTIES and outside.any():
            raise BadInput(
                f"{name} id {frame['id'][outside].iloc[0]}: {column} is {numbers[outside][0]:g} where a "
                "certainty from 0 to 1 is expected: measure it again."
            )


def outcome_groups(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return a boolean mask of the rows for each of `GROUPS`, by label and baseline answer."""
    label, answer = (frame[name].to_numpy(dtype=object) == "yes" for name in ("label", "answer"))
    return {
        "TP": label & answer,
        "FP": ~label & answer,
        "TN": ~label & ~answer,
        "FN": label & ~answer,
        "correct": label == answer,
        "wrong": label != answer,
    }


def values(frame: pd.DataFrame, signal: str) -> np.ndarray | None:
    """Return a signal as float64, or None where these rows do not have it; BadInput where no study has it."""
    if signal == LOGIT_GAP:
        return np.abs(frame["yes_max"].to_numpy(np.float64) - frame["no_max"].to_numpy(np.float64))
    if signal not in OPTIONAL:
        raise BadInput(f"signal {signal!r} is not known: use {LOGIT_GAP} or one of {', '.join(OPTIONAL)}.")
    return frame[signal].to_numpy(np.float64) if signal in frame else None
