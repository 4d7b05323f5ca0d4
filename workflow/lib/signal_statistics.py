"""Frames of statistics from signals: group comparisons, and the instrumented pass against the main run."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from workflow.lib import differences, resampling, signals
from workflow.lib.errors import BadInput
from workflow.lib.statistics import AnswerSet

REFERENCE = "legacy_8tok"
NOT_MEASURED = "not measured"
# fmt: off
TEST_COLUMNS = (
    "study", "model", "split", "signal", "group_a", "group_b", "n_a", "n_b", "mean_a", "mean_b", "sd_a", "sd_b",
    "difference", "ci_low", "ci_high", "u", "p", "d", "p_bonferroni", "tests", "level", "resamples", "seed",
    "degenerate", "method", "continuity", "scipy",
)
PASS_COLUMNS = (
    "study", "model", "split", "n", "tp", "fp", "tn", "fn", "correct", "wrong", "mean_yes_max", "mean_no_max",
    "ties", "tie_ids", "reference", "agree", "differ", "differing_ids",
)
# fmt: on


def signal_tests(
    measured: Iterable[tuple[pd.DataFrame, Mapping]],
    comparisons: Sequence[Mapping],
    level: float,
    resamples: int,
    seed: int,
) -> pd.DataFrame:
    """Compare signals between outcome groups (first paper, Appendix F.3 and Table 9).

    Parameters
    ----------
    measured : iterable of (signals, metadata)
        As `signals.load` returns them, one a model and split.
    comparisons : sequence of mapping
        ``signal`` (`signals.OPTIONAL` or `signals.LOGIT_GAP`) and ``groups``, two of `signals.GROUPS`; the
        first is group a. They are one family: p is corrected for as many tests as gave a p for a model and
        split (column ``tests``). The paper prints seven p-values and speaks of six tests.
    level, resamples, seed : float, int, int
        Of the bootstrap. Each comparison starts a generator of its own from the seed, so that an interval
        does not depend on the comparisons before it.

    Returns
    -------
    pandas.DataFrame
        Columns `TEST_COLUMNS`. Cells without a meaning are empty and ``degenerate`` says why; a signal that a
        study has not measured has a row with only its group sizes.
    """
    rows = []
    for frame, metadata in measured:
        masks = signals.outcome_groups(frame)
        held = []
        for comparison in comparisons:
            groups = tuple(comparison["groups"])
            for name in groups:
                if name not in masks:
                    raise BadInput(f"outcome group {name!r} is not known: use one of {', '.join(signals.GROUPS)}.")
            values = signals.values(frame, comparison["signal"])
            pair = [masks[name] if values is None else values[masks[name]] for name in groups]
            row = {
                "study": metadata["study"],
                "model": metadata["model"],
                "split": metadata["split"],
                "signal": comparison["signal"],
                "group_a": groups[0],
                "group_b": groups[1],
                "n_a": int(masks[groups[0]].sum()),
                "n_b": int(masks[groups[1]].sum()),
                "level": level,
                "resamples": resamples,
                "seed": seed,
            }
            measures = _unmeasured() if values is None else _compared(*pair, groups, level, resamples, seed)
            held.append(row | measures)
        tests = sum(row["p"] != "" for row in held)
        for row in held:
            corrected = "" if row["p"] == "" else differences.bonferroni(row["p"], tests)
            rows.append(row | {"p_bonferroni": corrected, "tests": tests})
    return pd.DataFrame(rows, columns=list(TEST_COLUMNS))


def _compared(a: np.ndarray, b: np.ndarray, groups: tuple[str, str], level: float, resamples: int, seed: int) -> dict:
    interval = resampling.difference_of_means(a, b, resamples, level, np.random.default_rng(seed))
    test = differences.mann_whitney(a, b)
    return {
        "mean_a": float(a.mean()) if len(a) else "",
        "mean_b": float(b.mean()) if len(b) else "",
        "sd_a": _blank(differences.spread_of(a)),
        "sd_b": _blank(differences.spread_of(b)),
        "difference": _blank(interval.estimate),
        "ci_low": _blank(interval.low),
        "ci_high": _blank(interval.high),
        "u": _blank(test.u),
        "p": _blank(test.p),
        "d": _blank(differences.cohens_d(a, b)),
        "degenerate": differences.degenerate(a, b, groups),
        "method": test.method,
        "continuity": test.continuity,
        "scipy": test.scipy,
    }


def _unmeasured() -> dict:
    numbers = ("mean_a", "mean_b", "sd_a", "sd_b", "difference", "ci_low", "ci_high", "u", "p", "d")
    named = {"degenerate": NOT_MEASURED, "method": "", "continuity": False, "scipy": ""}
    return dict.fromkeys(numbers, "") | named


def instrumented_pass(measured: Iterable[tuple[pd.DataFrame, Mapping]], sets: Iterable[AnswerSet]) -> pd.DataFrame:
    """Describe the pass that measured the signals and compare its answers with the main run's.

    The signals come from a pass of their own, so near-ties may fall to the other side. Rows are matched by
    id; ``tie_ids`` and ``differing_ids`` list ids in ascending order with blanks between them.

    Parameters
    ----------
    measured : iterable of (signals, metadata)
    sets : iterable of AnswerSet
        The main run's answers of the same models and splits, among others.

    Returns
    -------
    pandas.DataFrame
        Columns `PASS_COLUMNS`, one row a model and split.
    """
    main = {(held.model, held.split): held for held in sets}
    rows = []
    for frame, metadata in measured:
        key = metadata["model"], metadata["split"]
        if key not in main:
            raise BadInput(f"no answers of model {key[0]}, split {key[1]} stand beside its signals: read them.")
        answered = main[key].with_answers(reference=REFERENCE)[["id", "label", "reference"]]
        both = frame.merge(answered, on="id", how="outer", suffixes=("", "_main"), indicator=True)
        if (both["_merge"] != "both").any() or (both["label"] != both["label_main"]).any():
            raise BadInput(
                f"{main[key].source} and the signals of model {key[0]}, split {key[1]} hold other questions or "
                "labels: rebuild both from the same question file."
            )
        both = both.sort_values("id")
        differ = both["answer"] != both["reference"]
        tied = both["yes_max"] == both["no_max"]
        counts = {name.lower(): int(mask.sum()) for name, mask in signals.outcome_groups(both).items()}
        row = {
            "study": metadata["study"],
            "model": key[0],
            "split": key[1],
            "n": len(both),
            "mean_yes_max": float(both["yes_max"].astype(float).mean()) if len(both) else "",
            "mean_no_max": float(both["no_max"].astype(float).mean()) if len(both) else "",
            "ties": int(tied.sum()),
            "tie_ids": " ".join(map(str, both.loc[tied, "id"])),
            "reference": REFERENCE,
            "agree": int((~differ).sum()),
            "differ": int(differ.sum()),
            "differing_ids": " ".join(map(str, both.loc[differ, "id"])),
        }
        rows.append(row | counts)
    return pd.DataFrame(rows, columns=list(PASS_COLUMNS))


def _blank(value: float | None) -> float | str:
    """Return a number for a table, an empty cell where there is none: a 0 would look like a result."""
    return "" if value is None else value
