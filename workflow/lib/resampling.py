"""Percentile bootstrap: intervals for a difference of means, for F1 and for the gap of F1 between two readouts.

The difference of means repeats the first paper's sequence of draws, so its intervals agree to the last printed
digit. F1 needs no sequence: it depends on a resample only through the counts of outcomes in it, and resampling
units with replacement makes those counts multinomial, so they are drawn directly.

References
----------
Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 (percentile intervals).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from workflow.lib import metrics
from workflow.lib.errors import BadInput
from workflow.lib.metrics import Confusion

CELLS = ("tp", "fp", "fn", "tn", "unknown_yes", "unknown_no")
"""Outcome cells of one readout, in the order of the last axis of every array of counts here."""
UNITS = ("question", "image")
"""What may be resampled: single questions, or images with all their questions."""
BLOCK = 100
"""Resamples whose drawn indices are held at a time."""


@dataclass(frozen=True)
class Interval:
    """A percentile interval.

    Attributes
    ----------
    estimate : float or None
        The statistic of the data themselves; None where there is nothing to compute it from.
    low, high : float or None
        Percentiles 100 (1 - level) / 2 and 100 (1 + level) / 2 of the resamples, linearly interpolated; None
        where nothing could be resampled.
    level : float
        Coverage aimed at, between 0 and 1.
    resamples : int
    degenerate : str
        What is degenerate about the data, "" where nothing is.
    degenerate_resamples : int
        Resamples in which F1 is 0/0 and counts as 0 (of a gap: in which either F1 is).
    """

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    resamples: int
    degenerate: str = ""
    degenerate_resamples: int = 0


def percentiles(values: np.ndarray, level: float) -> tuple[float, float]:
    """Return the two percentiles that enclose the share ``level`` of the values, in equal tails."""
    # in decimal: 1 - 0.95 in binary would not give 2.5
    tail = 50 * (1 - Fraction(str(level)))
    low, high = np.percentile(values, [float(tail), float(100 - tail)])
    return float(low), float(high)


def difference_of_means(
    a: Sequence[float], b: Sequence[float], resamples: int, level: float, rng: np.random.Generator
) -> Interval:
    """Return the interval of mean(a) - mean(b), both groups resampled with replacement.

    One generator serves both groups: a resample first draws ``len(a)`` values from a, then ``len(b)`` from b
    (first paper, Appendix F.3: 10,000 resamples, seed 42). The draws are those of ``Generator.choice``, and
    the generator is left in the same state. Drawing takes four fifths of the time.

    Parameters
    ----------
    a, b : sequence of finite float
        An empty group gives no interval, a group of one value never varies; both are labelled.
    resamples : int
    level : float
        Between 0 and 1.
    rng : numpy.random.Generator

    Raises
    ------
    BadInput
        NaN or infinite values, a level outside (0, 1), or no resamples.
    """
    _check(resamples, level)
    a, b = (_finite(values, name) for values, name in ((a, "first"), (b, "second")))
    labels = [
        f"{name} group is empty" if not len(group) else f"{name} group has one value"
        for group, name in ((a, "first"), (b, "second"))
        if len(group) < 2
    ]
    if not len(a) or not len(b):
        return Interval(None, None, None, level, resamples, ", ".join(labels))
    if not labels and not np.ptp(a) and not np.ptp(b):
        labels = ["constant groups"]
    differences = np.empty(resamples)
    drawn_a = np.empty((BLOCK, len(a)), np.int64)
    drawn_b = np.empty((BLOCK, len(b)), np.int64)
    for start in range(0, resamples, BLOCK):
        held = min(BLOCK, resamples - start)
        for row in range(held):
            drawn_a[row] = rng.integers(0, len(a), len(a))
            drawn_b[row] = rng.integers(0, len(b), len(b))
        differences[start : start + held] = a[drawn_a[:held]].mean(axis=1) - b[drawn_b[:held]].mean(axis=1)
    low, high = percentiles(differences, level)
    return Interval(float(a.mean() - b.mean()), low, high, level, resamples, ", ".join(labels))


@dataclass(frozen=True)
class Outcomes:
    """Resampling units, those with equal outcomes counted together.

    Attributes
    ----------
    unit : "question" or "image"
    patterns : ndarray of int64, shape (k, readouts, 6)
        Outcome counts of one unit, cells in the order of `CELLS`; no two patterns are equal.
    multiplicity : ndarray of int64, shape (k,)
        How many units have that pattern.
    """

    unit: str
    patterns: np.ndarray
    multiplicity: np.ndarray

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.multiplicity.sum())

    @property
    def totals(self) -> np.ndarray:
        """Outcome counts of all units, int64, shape (readouts, 6)."""
        return np.tensordot(self.multiplicity, self.patterns, axes=1)

    @property
    def degenerate(self) -> str:
        """What is degenerate: labels of `metrics.Confusion` of any readout, "one question" or "one image"."""
        labels = [f"one {self.unit}"] if self.units == 1 else []
        for readout in self.totals.tolist():
            labels += Confusion(**dict(zip(CELLS, readout, strict=True))).degenerate.split(", ")
        return ", ".join(dict.fromkeys(label for label in labels if label))

    def resampled(self, resamples: int, rng: np.random.Generator) -> np.ndarray:
        """Return the outcome counts of resamples of the units, int64, shape (resamples, readouts, 6)."""
        return _drawn(self.patterns, self.multiplicity, resamples, rng)


def outcomes(
    labels: Sequence[str],
    *answers: Sequence[str],
    unit: Literal["question", "image"],
    images: Sequence[str] | None = None,
) -> Outcomes:
    """Group the outcomes of one or more readouts of the same questions by resampling unit.

    Parameters
    ----------
    labels : sequence of "yes" or "no", length n
    *answers : sequences of "yes", "no" or "unknown", length n
        One a readout.
    unit : "question" or "image"
        With "image", all questions of an image are drawn together, which keeps their dependence.
    images : sequence of str, length n
        Image of each question; only needed for unit "image".

    Raises
    ------
    BadInput
        Unlike lengths, a value outside those named, another unit, or no images where they are the unit.
    """
    if unit not in UNITS:
        raise BadInput(f"resampling unit {unit!r} is not known: use question or image.")
    if unit == "image" and (images is None or len(images) != len(labels)):
        found = "none" if images is None else str(len(images))
        raise BadInput(f"{len(labels)} questions need {len(labels)} images to resample images, got {found}.")
    codes = np.stack([_codes(labels, given) for given in answers], axis=1)
    each = np.eye(len(CELLS), dtype=np.int64)
    if unit == "question":
        # equal outcomes are counted by one number each, much faster than by comparing rows
        weights = len(CELLS) ** np.arange(codes.shape[1])
        _, first, multiplicity = np.unique(codes @ weights, return_index=True, return_counts=True)
        return Outcomes(unit, each[codes[first]], multiplicity.astype(np.int64))
    _, number = np.unique(np.asarray(images, dtype=object), return_inverse=True)
    summed = np.zeros((number.max() + 1 if len(number) else 0, codes.shape[1], len(CELLS)), np.int64)
    np.add.at(summed, number, each[codes])
    return Outcomes(unit, *_merged(summed, np.ones(len(summed), np.int64)))


def outcomes_of_counts(counted: Confusion) -> Outcomes:
    """Return the outcomes of one readout of which only the counts are known; the unit is the question."""
    return Outcomes(
        "question",
        np.eye(len(CELLS), dtype=np.int64)[:, np.newaxis, :],
        np.array([getattr(counted, cell) for cell in CELLS], np.int64),
    )


def _codes(labels: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """Return the number in `CELLS` of each question's outcome."""
    label, answer = np.asarray(labels, dtype=str), np.asarray(answers, dtype=str)
    positive, yes, no = label == "yes", answer == "yes", answer == "no"
    known = (positive | (label == "no")).all() and (yes | no | (answer == "unknown")).all()
    if label.shape != answer.shape or not known:
        # counting them says which row is wrong
        metrics.confusion(labels, answers)
    return np.where(positive, np.where(yes, 0, np.where(no, 2, 4)), np.where(yes, 1, np.where(no, 3, 5)))


def _merged(patterns: np.ndarray, multiplicity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different patterns, with the multiplicities of equal ones added."""
    if not len(patterns):
        return patterns, multiplicity
    found, number = np.unique(patterns, axis=0, return_inverse=True)
    return found, np.bincount(number.ravel(), weights=multiplicity).astype(np.int64)


def _drawn(patterns: np.ndarray, multiplicity: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return the summed patterns of as many units as there are, drawn with replacement, for each resample."""
    units = multiplicity.sum()
    drawn = rng.multinomial(units, multiplicity / units, size=resamples)
    return np.tensordot(drawn, patterns, axes=1)


def f1(counts: np.ndarray) -> np.ndarray:
    """Return F1 of outcome counts, shape (..., 6) to (...): 2 TP / (TP + FP + P), 0 where that is 0/0.

    P counts all label-yes rows, those without a verdict too, as in `metrics.Confusion.f1`.
    """
    return _f1(*np.moveaxis(_decisive(counts), -1, 0))


def _decisive(counts: np.ndarray) -> np.ndarray:
    """Return what F1 depends on, shape (..., 6) to (..., 2): TP, and FP + FN + unknown on label yes."""
    tp, fp, fn, _, unknown_yes, _ = np.moveaxis(counts, -1, 0)
    return np.stack([tp, fp + fn + unknown_yes], axis=-1)


def _f1(tp: np.ndarray, errors: np.ndarray) -> np.ndarray:
    denominator = 2 * tp + errors
    return np.divide(2 * tp, denominator, out=np.zeros(denominator.shape), where=denominator > 0)


def f1_interval(held: Outcomes, level: float, resamples: int, rng: np.random.Generator) -> Interval:
    """Return the interval of the F1 of one readout; its resampling unit is that of ``held``.

    Parameters
    ----------
    held : Outcomes
        Of one readout.
    level : float
        Between 0 and 1.
    resamples : int
    rng : numpy.random.Generator
    """
    return _interval(held, 1, lambda values: values[..., 0], level, resamples, rng)


def f1_gap_interval(held: Outcomes, level: float, resamples: int, rng: np.random.Generator) -> Interval:
    """Return the interval of the F1 of the first readout minus that of the second; arguments as `f1_interval`.

    Both readouts see the same resample, so what they have in common cancels.
    """
    return _interval(held, 2, lambda values: values[..., 0] - values[..., 1], level, resamples, rng)


def _interval(
    held: Outcomes,
    readouts: int,
    statistic: Callable[[np.ndarray], np.ndarray],
    level: float,
    resamples: int,
    rng: np.random.Generator,
) -> Interval:
    """Bootstrap a statistic of the F1 of each readout."""
    _check(resamples, level)
    if held.patterns.shape[1] != readouts:
        raise ValueError(f"outcomes of {held.patterns.shape[1]} readouts where {readouts} are expected")
    estimate = float(statistic(f1(held.totals)))
    if not held.units:
        return Interval(estimate, None, None, level, resamples, held.degenerate)
    # units that F1 cannot tell apart are drawn as one, which leaves fewer numbers to draw
    patterns, multiplicity = _merged(_decisive(held.patterns), held.multiplicity)
    tp, errors = np.moveaxis(_drawn(patterns, multiplicity, resamples, rng), -1, 0)
    low, high = percentiles(statistic(_f1(tp, errors)), level)
    undefined = int((2 * tp + errors == 0).any(axis=1).sum())
    return Interval(estimate, low, high, level, resamples, held.degenerate, undefined)


def _check(resamples: int, level: float) -> None:
    if isinstance(resamples, bool) or resamples != int(resamples) or resamples < 1:
        raise BadInput(f"{resamples!r} resamples where a whole number from 1 upward is expected.")
    if not 0 < level < 1:
        raise BadInput(f"level {level!r} where a number between 0 and 1 is expected, such as 0.95.")


def _finite(values: Sequence[float], name: str) -> np.ndarray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise BadInput(f"the {name} group is not a list of finite numbers: remove NaN and infinite values.")
    return found
