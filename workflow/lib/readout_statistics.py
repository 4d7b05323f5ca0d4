"""Frames of statistics that compare readouts: bootstrap intervals, paired tests, ties and near-ties."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from workflow.lib import differences, margins, readouts, resampling
from workflow.lib.answers import StoredView
from workflow.lib.errors import BadInput
from workflow.lib.logits import Logits
from workflow.lib.metrics import Confusion
from workflow.lib.readouts import LogitsView
from workflow.lib.resampling import CELLS, Interval, Outcomes
from workflow.lib.statistics import AnswerSet
from workflow.lib.tokens import TokenSet

# fmt: off
INTERVAL_COLUMNS = (
    "study", "model", "split", "readout", "metric", "unit", "level", "estimate", "low", "high", "resamples",
    "seed", "basis", "degenerate", "degenerate_resamples",
)
MCNEMAR_COLUMNS = (
    "study", "model", "split", "readout_a", "readout_b", "both_right", "only_a", "only_b", "both_wrong", "p",
    "method", "degenerate",
)
MARGIN_COLUMNS = (
    "study", "model", "split", "readout", "basis", "n", "ties", "near_ties_float16", "near_ties_bfloat16",
)
HISTOGRAM_COLUMNS = ("study", "model", "split", "readout", "basis", "low", "high", "count")
# fmt: on


def intervals(
    sets: Iterable[AnswerSet],
    counts: Iterable[pd.DataFrame],
    images: pd.DataFrame,
    study: str,
    names: Sequence[str],
    pairs: Sequence[Sequence[str]],
    units: Sequence[str],
    level: float,
    resamples: int,
    seed: int,
) -> pd.DataFrame:
    """Return bootstrap intervals of F1, and of the gap of F1 between two readouts.

    Parameters
    ----------
    sets : iterable of AnswerSet
    counts : iterable of pandas.DataFrame
        Counts of models without answers: model, split, readout, the cells, basis. They allow F1 with the
        question as the unit, and nothing else.
    images : pandas.DataFrame
        Items of all splits, for the image of each question.
    study : str
    names : sequence of str
        Readouts, in the order wanted; one that a model has no answers of is left out.
    pairs : sequence of two str
        Readouts whose gap is taken, the first minus the second: metric "f1_gap", readout "a - b".
    units : sequence of "question" or "image"
    level, resamples, seed : float, int, int
        Each row starts a generator of its own from the seed, so that no row depends on another.

    Returns
    -------
    pandas.DataFrame
        Columns `INTERVAL_COLUMNS`.
    """
    rows = []

    def add(origin: dict, readout: str, held: Outcomes) -> None:
        gap = held.patterns.shape[1] == 2
        bound = resampling.f1_gap_interval if gap else resampling.f1_interval
        found = bound(held, level, resamples, np.random.default_rng(seed))
        metric = "f1_gap" if gap else "f1"
        named = {"readout": readout, "metric": metric, "unit": held.unit, "seed": seed}
        rows.append(origin | named | _columns(found))

    for answers in sets:
        origin = {name: getattr(answers, name) for name in ("study", "model", "split", "basis")}
        held = set(answers.frame["readout"])
        known = [name for name in names if name in held]
        wide = _with_images(answers, known, images) if "image" in units else _wide(answers, known)
        wanted = [[name] for name in known] + [list(pair) for pair in pairs if set(pair) <= set(known)]
        for unit in units:
            for chosen in wanted:
                grouped = resampling.outcomes(
                    wide["label"].tolist(),
                    *(wide[name].tolist() for name in chosen),
                    unit=unit,
                    images=wide["image"].tolist() if unit == "image" else None,
                )
                add(origin, " - ".join(chosen), grouped)
    for row in (row for frame in counts for row in frame.to_dict("records")):
        if row["readout"] in names and "question" in units:
            origin = {"study": study} | {name: row[name] for name in ("model", "split", "basis")}
            counted = Confusion(**{name: row[name] for name in CELLS})
            add(origin, row["readout"], resampling.outcomes_of_counts(counted))
    return pd.DataFrame(rows, columns=list(INTERVAL_COLUMNS))


def _columns(found: Interval) -> dict:
    names = ("level", "resamples", "degenerate", "degenerate_resamples")
    numbers = {name: getattr(found, name) for name in ("estimate", "low", "high")}
    # None becomes an empty cell: there is no interval, and a 0 would look like one
    filled = {name: "" if value is None else value for name, value in numbers.items()}
    return filled | {name: getattr(found, name) for name in names}


def _wide(answers: AnswerSet, names: Sequence[str]) -> pd.DataFrame:
    return answers.with_answers(**{name: name for name in names})


def _with_images(answers: AnswerSet, names: Sequence[str], images: pd.DataFrame) -> pd.DataFrame:
    key = ["dataset", "split", "id"]
    wide = _wide(answers, names).merge(images[[*key, "image"]], on=key, how="left", validate="one_to_one")
    if wide["image"].isna().any():
        absent = wide.loc[wide["image"].isna(), "id"].iloc[0]
        raise BadInput(
            f"{answers.source}: question {absent} of split {answers.split} is not among the items: answers and "
            "items must come from the same question file."
        )
    return wide


def paired_tests(sets: Iterable[AnswerSet], pairs: Sequence[Sequence[str]], method: str) -> pd.DataFrame:
    """Return McNemar's test for pairs of readouts on the same questions; columns `MCNEMAR_COLUMNS`.

    A pair is left out where a model has no answers of one of the two.
    """
    rows = []
    for answers in sets:
        held = set(answers.frame["readout"])
        for a, b in pairs:
            if a not in held or b not in held:
                continue
            wide = answers.with_answers(a=a, b=b)
            found = differences.mcnemar(wide["label"].tolist(), wide["a"].tolist(), wide["b"].tolist(), method)
            origin = {name: getattr(answers, name) for name in ("study", "model", "split")}
            measured = {name: getattr(found, name) for name in MCNEMAR_COLUMNS[5:]}
            rows.append(origin | {"readout_a": a, "readout_b": b} | measured)
    return pd.DataFrame(rows, columns=list(MCNEMAR_COLUMNS))


def tie_rows(
    origin: Mapping[str, str], readout: str, yes: np.ndarray, no: np.ndarray, width: float
) -> tuple[dict, pd.DataFrame]:
    """Count ties and near-ties of one readout and make the histogram of its margins.

    Parameters
    ----------
    origin : mapping
        study, model, split and basis.
    readout : str
    yes, no : ndarray of float32, shape (n,)
        Maxima of the two sides.
    width : float
        Bin width in logits.

    Returns
    -------
    row : dict
        Columns `MARGIN_COLUMNS`.
    bins : pandas.DataFrame
        Columns `HISTOGRAM_COLUMNS`.
    """
    row = {**origin, "readout": readout, "n": len(yes), "ties": int((yes == no).sum())}
    row |= {f"near_ties_{name}": int(margins.near_ties(yes, no, name).sum()) for name in margins.FORMATS}
    bins = margins.histogram(np.asarray(yes, np.float64) - np.asarray(no, np.float64), width)
    return row, bins.assign(**origin, readout=readout)[list(HISTOGRAM_COLUMNS)]


def origin_of(stored: Logits) -> dict[str, str]:
    """Return study, model, split and basis of merged logits."""
    return {name: stored.identity[name] for name in ("study", "model", "split")} | {"basis": "logits"}


def stored_view(stored: Logits, source: str) -> StoredView:
    """Return merged logits as token-set readouts see them; texts and labels are left out."""
    held = stored.identity["token_sets"].get("dynamic_single")
    dynamic = TokenSet(tuple(held["yes"]), tuple(held["no"])) if held else None
    return StoredView(stored.candidate_ids, stored.candidate_logits, (), (), (), dynamic, source)


def ties(
    stored: Iterable[tuple[Mapping[str, str], LogitsView]],
    measured: Iterable[tuple[pd.DataFrame, Mapping]],
    names: Sequence[str],
    precision: str,
    width: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count ties and near-ties of every readout that compares maxima.

    Parameters
    ----------
    stored : iterable of (origin, LogitsView)
        Merged logits; ``origin`` holds study, model, split and basis.
    measured : iterable of (signals, metadata)
        For studies without logits: the set maxima of the instrumented pass, as readout legacy_8tok with basis
        "signals".
    names : sequence of str
        Readouts in force; those that compare no maxima are left out.
    precision : str
        Format to which logits are rounded first.
    width : float
        Bin width in logits.

    Returns
    -------
    margins, histogram : pandas.DataFrame
        Columns `MARGIN_COLUMNS` and `HISTOGRAM_COLUMNS`.
    """
    found = []
    for origin, view in stored:
        for name in (name for name in names if readouts.get(name).aggregator == "max"):
            found.append(tie_rows(origin, name, *margins.maxima(name, view, precision), width))
    for frame, metadata in measured:
        origin = {name: metadata[name] for name in ("study", "model", "split")} | {"basis": "signals"}
        maxima = frame["yes_max"].to_numpy(), frame["no_max"].to_numpy()
        found.append(tie_rows(origin, "legacy_8tok", *maxima, width))
    empty = pd.DataFrame(columns=list(HISTOGRAM_COLUMNS))
    bins = pd.concat([bins for _, bins in found], ignore_index=True) if found else empty
    return pd.DataFrame([row for row, _ in found], columns=list(MARGIN_COLUMNS)), bins
