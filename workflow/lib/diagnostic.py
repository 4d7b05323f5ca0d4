"""The first paper's instrumented pass and correction runs, as released: per-question signals and counts.

The instrumented pass keeps, for every question of one split, the two set maxima, the attention on the image and
the CLIP-L similarity; of four correction runs only the counts are released. Every file is recounted against its
own summary before it is used.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow.lib import corrections, files
from workflow.lib.errors import BadInput
from workflow.lib.metrics import Confusion
from workflow.lib.records import LABELS, RESTORE, Expected, question_id

VISUAL_SPAN = [1, 577]
"""Positions of the image in the prompt, half open."""
_NUMBERS = ("yes_raw", "no_raw", "gap_raw", "grounding", "clip_l_max_sim")


def read(path: str | Path, dataset: str, expected: Expected) -> tuple[pd.DataFrame, dict]:
    """Read the records of the instrumented pass into the layout of signals.

    Parameters
    ----------
    path : path
        The released JSON file.
    dataset : str
        Name written into the rows.
    expected : Expected
        Split, row count and model that are declared for it.

    Returns
    -------
    frame : pandas.DataFrame
        Columns dataset, split, id, label, answer, yes_max, no_max, attention, clip_l_similarity; ids ascending.
        Logits and their maxima are 16-bit values and therefore exact; the two signals are rounded to float32.
    origin : dict
        ``layers`` (of the attention, half open) and ``ties`` (number of equal maxima).

    Raises
    ------
    BadInput
        A record or summary field that is not what was declared, a number that is missing or not finite, a
        gap that is not yes_raw - no_raw, an answer that is not the strict rule's, or counts that do not add up.
    """
    path = Path(path)
    document = files.read_json(path)
    if not isinstance(document, dict) or not {"summary", "results"} <= document.keys():
        raise BadInput(f"{path} has no 'summary' and 'results': it is no diagnostic file, so {RESTORE}.")
    summary, rows = document["summary"], document["results"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: 'results' is not a list of records: {RESTORE}.")
    _check_summary(path, summary, expected)
    if len(rows) != expected.rows:
        raise BadInput(
            f"{path} has {len(rows)} records where {expected.rows} are declared for split {expected.split}: "
            "give the complete file or correct dataset.rows."
        )
    for number, row in enumerate(rows, 1):
        _check_row(f"{path} record {number}", row, number)
    pairs = Counter((row["label"], row["prediction"]) for row in rows)
    counted = Confusion(pairs["yes", "yes"], pairs["no", "yes"], pairs["yes", "no"], pairs["no", "no"])
    _check_counts(path, summary, counted)
    frame = pd.DataFrame(
        {
            "dataset": dataset,
            "split": expected.split,
            "id": np.arange(1, len(rows) + 1, dtype=np.int64),
            "label": [row["label"] for row in rows],
            "answer": [row["prediction"] for row in rows],
            "yes_max": np.array([row["yes_raw"] for row in rows], np.float32),
            "no_max": np.array([row["no_raw"] for row in rows], np.float32),
            "attention": np.array([row["grounding"] for row in rows], np.float32),
            "clip_l_similarity": np.array([row["clip_l_max_sim"] for row in rows], np.float32),
        }
    )
    ties = int((frame["yes_max"] == frame["no_max"]).sum())
    return frame, {"layers": summary.get("layers_for_grounding"), "ties": ties}


def _check_summary(path: Path, summary: Any, expected: Expected) -> None:
    if not isinstance(summary, dict):
        raise BadInput(f"{path}: its summary is not an object: {RESTORE}.")
    wanted = {"split": expected.split, "n_total": expected.rows, "n_valid": expected.rows, "n_errors": 0}
    if "model_path" in summary:
        wanted["model_path"] = expected.model_id
    for name, value in wanted.items():
        if summary.get(name) != value:
            raise BadInput(
                f"{path}: its summary has {name} {summary.get(name)!r} where {value!r} is declared: give the file "
                "of that run or correct the study's configuration."
            )


def _check_row(where: str, row: dict, number: int) -> None:
    found = question_id(row.get("question_id"), where)
    if found != number:
        raise BadInput(
            f"{where}: question_id {found} where {number} is expected; ids run from 1 without gaps or repeats, so "
            f"{RESTORE}."
        )
    label = LABELS[(number - 1) % 2]
    if row.get("label") != label:
        raise BadInput(
            f"{where}: label {row.get('label')!r} where {label!r} is expected; labels alternate yes, no, so {RESTORE}."
        )
    for name in _NUMBERS:
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise BadInput(f"{where}: {name} is {value!r} where a finite number is expected: {RESTORE}.")
    for name in ("yes_raw", "no_raw"):
        # beyond the largest finite value NumPy would give an infinity and warn
        if abs(row[name]) > 65504 or float(np.float16(row[name])) != row[name]:
            raise BadInput(f"{where}: {name} {row[name]!r} is no 16-bit value, as all logits were: {RESTORE}.")
    for name, lowest in (("grounding", 0), ("clip_l_max_sim", -1)):
        if not lowest <= row[name] <= 1:
            raise BadInput(
                f"{where}: {name} is {row[name]!r} where a number from {lowest} to 1 is expected: {RESTORE}."
            )
    if row["gap_raw"] != row["yes_raw"] - row["no_raw"]:
        raise BadInput(f"{where}: gap_raw {row['gap_raw']!r} is not yes_raw - no_raw: {RESTORE}.")
    answer = "yes" if row["yes_raw"] > row["no_raw"] else "no"
    for name in ("prediction", "baseline_prediction"):
        if row.get(name) != answer:
            raise BadInput(
                f"{where}: {name} is {row.get(name)!r} where the strict rule on yes_raw and no_raw says "
                f"{answer!r}: {RESTORE}."
            )
    if row.get("visual_span") != VISUAL_SPAN:
        raise BadInput(
            f"{where}: visual_span is {row.get('visual_span')!r} where {VISUAL_SPAN} is expected: {RESTORE}."
        )


def _check_counts(path: Path, summary: dict, counted: Confusion) -> None:
    for name in corrections.COUNTS:
        if summary.get(name) != getattr(counted, name):
            raise BadInput(
                f"{path}: its summary has {name} {summary.get(name)!r} where {getattr(counted, name)} is "
                f"expected: {RESTORE}."
            )
    for name in ("f1", "precision", "recall"):
        stated = summary.get(name)
        # half a unit of the fourth decimal, and a little for the binary neighbour of a decimal number
        if not isinstance(stated, int | float) or abs(stated - getattr(counted, name)) > 5.001e-5:
            raise BadInput(
                f"{path}: its summary has {name} {stated!r} but its counts give {getattr(counted, name):.6f}: "
                f"{RESTORE}."
            )


@dataclass(frozen=True)
class CorrectionRun:
    """What a released summary of one correction run is declared to be; ``mode`` is the file's own name of it."""

    method: str
    beta: float
    mode: str


def read_summary(path: str | Path, run: CorrectionRun, expected: Expected) -> Confusion:
    """Return the counts of one released correction run.

    Raises
    ------
    BadInput
        Another split, row count or mode than declared, labels that are not half yes, or metrics that do not
        follow from the counts.
    """
    path = Path(path)
    summary = files.read_json(path)
    _check_summary(path, summary, expected)
    if summary.get("mode") != run.mode:
        raise BadInput(
            f"{path} has mode {summary.get('mode')!r} where {run.mode!r} is declared for {run.method}, beta "
            f"{run.beta}: give the file of that run or correct the study's configuration."
        )
    for name in corrections.COUNTS:
        value = summary.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadInput(f"{path}: {name} is {value!r} where a count is expected: {RESTORE}.")
    counted = Confusion(**{name: summary[name] for name in corrections.COUNTS})
    if (counted.positives, counted.negatives) != (expected.rows // 2, expected.rows // 2):
        raise BadInput(
            f"{path}: its counts give {counted.positives} questions with label yes and {counted.negatives} with "
            f"no where {expected.rows // 2} of each are declared: {RESTORE}."
        )
    _check_counts(path, summary, counted)
    return counted


def released_corrections(
    paths: Sequence[str | Path], runs: Sequence[CorrectionRun], model: str, expected: Expected
) -> pd.DataFrame:
    """Return the counts of several released correction runs, one row a run in the given order.

    Returns
    -------
    pandas.DataFrame
        Columns model, split, method, beta, variant ("as run"), tp, fp, fn, tn.
    """
    rows = []
    for path, run in zip(paths, runs, strict=True):
        counted = read_summary(path, run, expected)
        named = {"model": model, "split": expected.split, "method": corrections.get(run.method).name}
        cells = {name: getattr(counted, name) for name in corrections.COUNTS}
        rows.append(named | {"beta": float(run.beta), "variant": "as run"} | cells)
    return pd.DataFrame(rows)
