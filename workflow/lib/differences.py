"""Tests of a difference: of a signal between two groups of questions, and of two readouts on the same questions.

Nothing is rounded. Where a number has no meaning (an empty group, no spread) it is None and the case is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from scipy import stats

from workflow.lib import metrics
from workflow.lib.errors import BadInput

EXACT_UP_TO = 8
"""scipy's default takes the exact distribution of U where either group has at most this many values and no
two values are equal."""


@dataclass(frozen=True)
class MannWhitney:
    """Two-sided Mann-Whitney test.

    Attributes
    ----------
    u : float or None
        U of the first group: pairs in which its value is the larger, ties counted as one half.
    p : float or None
    method : "exact", "asymptotic" or ""
        Which null distribution was used; "" where no test was made.
    continuity : bool
        Whether the continuity correction was applied (asymptotic only).
    scipy : str
        Version of the library.
    """

    u: float | None
    p: float | None
    method: str
    continuity: bool
    scipy: str


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> MannWhitney:
    """Compare two groups with scipy's two-sided defaults and say what these resolved to.

    An empty group gives no test. Where all values are equal U is half of the pairs and p is 1.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not len(a) or not len(b):
        return MannWhitney(None, None, "", False, scipy.__version__)
    pooled = np.concatenate([a, b])
    small = min(len(a), len(b)) <= EXACT_UP_TO
    method = "exact" if small and len(np.unique(pooled)) == len(pooled) else "asymptotic"
    found = stats.mannwhitneyu(a, b, use_continuity=True, alternative="two-sided", method=method)
    return MannWhitney(float(found.statistic), float(found.pvalue), method, method == "asymptotic", scipy.__version__)


def pooled_sd(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the pooled standard deviation, both variances with n - 1; None below three values in all."""
    degrees = len(a) + len(b) - 2
    if not len(a) or not len(b) or degrees < 1:
        return None
    squares = sum(float(((np.asarray(group) - np.mean(group)) ** 2).sum()) for group in (a, b))
    return float(np.sqrt(squares / degrees))


def cohens_d(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return (mean(a) - mean(b)) / pooled SD, None where the pooled SD is 0 or does not exist."""
    spread = pooled_sd(a, b)
    return float((np.mean(a) - np.mean(b)) / spread) if spread else None


def bonferroni(p: float, tests: int) -> float:
    """Return p corrected for a family of tests: p times their number, at most 1."""
    if tests < 1:
        raise BadInput(f"a family of {tests} tests: give the number of tests made, from 1 upward.")
    return min(1.0, p * tests)


def spread_of(values: Sequence[float]) -> float | None:
    """Return the standard deviation with n - 1; None below two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def degenerate(a: Sequence[float], b: Sequence[float], names: tuple[str, str]) -> str:
    """Say what keeps two groups from being compared in full: "" where nothing does.

    "TP is empty", "TP has one value"; "constant signal" where all values are equal; "no spread" where each
    group is constant and they differ.
    """
    labels = [
        f"{name} {'is empty' if not len(group) else 'has one value'}"
        for name, group in zip(names, (a, b), strict=True)
        if len(group) < 2
    ]
    if len(a) and len(b) and not np.ptp(a) and not np.ptp(b):
        labels.append("constant signal" if a[0] == b[0] else "no spread")
    return ", ".join(labels)


@dataclass(frozen=True)
class McNemar:
    """Paired test of two readouts a and b of the same questions; a question counts as right or wrong.

    Attributes
    ----------
    both_right, only_a, only_b, both_wrong : int
        Questions by which readout is right; no verdict counts as wrong.
    p : float
        Two-sided; 1 where no question tells the readouts apart. Below about 5e-324 it is 0 in floating point.
    method : "exact" or "mid-p"
    degenerate : str
        "no questions" or "no discordant pairs", "" where the test says something.
    """

    both_right: int
    only_a: int
    only_b: int
    both_wrong: int
    p: float
    method: str

    @property
    def degenerate(self) -> str:
        """See the class."""
        if self.only_a + self.only_b:
            return ""
        return "no discordant pairs" if self.both_right + self.both_wrong else "no questions"


def mcnemar(labels: Sequence[str], a: Sequence[str], b: Sequence[str], method: Literal["exact", "mid-p"]) -> McNemar:
    """Test whether two readouts are right equally often, from the questions that only one of them gets right.

    Under the null hypothesis each of these falls to either readout with probability 1/2. "exact" is twice
    the smaller binomial tail, at most 1; "mid-p" takes half the probability of the observed count from either
    tail and is less conservative.

    References
    ----------
    Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13:91 (2013).

    Raises
    ------
    BadInput
        Unlike lengths, unknown values, or another method.
    """
    if method not in ("exact", "mid-p"):
        raise BadInput(f"McNemar's method {method!r} is not known: use exact or mid-p.")
    for given in (a, b):
        metrics.confusion(labels, given)
    labels = np.asarray(labels, dtype=object)
    right_a, right_b = (np.asarray(given, dtype=object) == labels for given in (a, b))
    only_a, only_b = int((right_a & ~right_b).sum()), int((~right_a & right_b).sum())
    fewer, discordant = min(only_a, only_b), only_a + only_b
    p = 2 * stats.binom.cdf(fewer, discordant, 0.5)
    if method == "mid-p":
        p -= stats.binom.pmf(fewer, discordant, 0.5)
    if not discordant:
        p = 1.0
    both_right, both_wrong = int((right_a & right_b).sum()), int((~right_a & ~right_b).sum())
    return McNemar(both_right, only_a, only_b, both_wrong, min(1.0, float(p)), method)
