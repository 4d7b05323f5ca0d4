"""Tests of a difference: by hand, against scipy, and where there is nothing to compare."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from workflow.lib import differences
from workflow.lib.errors import BadInput

GROUPS = st.lists(st.sampled_from([-1.5, 0.0, 0.25, 1.0, 2.0, 7.5]), min_size=1, max_size=15)


def test_mann_whitney_by_hand():
    # of six pairs the first group wins (3,1), (3,2), (5,1), (5,2) and (5,4)
    found = differences.mann_whitney([3.0, 5.0], [1.0, 2.0, 4.0])
    assert found.u == 5.0
    # 2 of the 10 arrangements have U of 5 or 6, and as many are as extreme on the other side
    assert found.p == pytest.approx(0.4)
    assert (found.method, found.continuity, found.scipy) == ("exact", False, scipy.__version__)


def test_u_belongs_to_the_first_group():
    a, b = [3.0, 5.0], [1.0, 2.0, 4.0]
    assert differences.mann_whitney(b, a).u == 6 - differences.mann_whitney(a, b).u == 1.0


@given(GROUPS, GROUPS)
def test_the_stated_method_is_what_scipys_default_takes(a, b):
    found, wanted = differences.mann_whitney(a, b), stats.mannwhitneyu(a, b)
    assert (found.u, found.p) == (wanted.statistic, wanted.pvalue)


@pytest.mark.parametrize(("n_a", "n_b", "method"), [(8, 40, "exact"), (40, 8, "exact"), (9, 9, "asymptotic")])
def test_small_groups_without_ties_are_exact(n_a, n_b, method):
    values = np.random.default_rng(0).permutation(n_a + n_b).astype(float)
    found = differences.mann_whitney(values[:n_a], values[n_a:])
    wanted = stats.mannwhitneyu(values[:n_a], values[n_a:])
    assert (found.method, found.continuity) == (method, method == "asymptotic")
    assert (found.u, found.p) == (wanted.statistic, wanted.pvalue)


def test_a_tie_makes_small_groups_asymptotic():
    assert differences.mann_whitney([1.0, 2.0], [2.0, 3.0]).method == "asymptotic"


def test_equal_values_everywhere_tell_nothing():
    found = differences.mann_whitney([2.0] * 4, [2.0] * 3)
    assert (found.u, found.p) == (6.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], []), ([], [])])
def test_empty_groups_are_not_tested(a, b):
    found = differences.mann_whitney(a, b)
    assert (found.u, found.p, found.method) == (None, None, "")
    assert differences.cohens_d(a, b) is None
    assert differences.pooled_sd(a, b) is None


def test_cohens_d_by_hand():
    # variances 1 (two degrees) and 2 (one degree): pooled 4/3; means 2 and 5
    assert differences.cohens_d([1.0, 2.0, 3.0], [4.0, 6.0]) == pytest.approx(-3 / math.sqrt(4 / 3))


@given(GROUPS, GROUPS)
def test_the_pooled_variance_is_the_weighted_mean_of_both(a, b):
    spread = differences.pooled_sd(a, b)
    if len(a) + len(b) < 3:
        assert spread is None
        return
    parts = sum((len(group) - 1) * np.var(group, ddof=1) for group in (a, b) if len(group) > 1)
    assert spread**2 == pytest.approx(parts / (len(a) + len(b) - 2))


@given(GROUPS, GROUPS, st.floats(0.5, 4), st.floats(-3, 3))
def test_d_ignores_unit_and_origin_and_turns_with_the_groups(a, b, unit, origin):
    found = differences.cohens_d(a, b)
    # without spread, rounding alone could make some
    assume(found is not None)
    moved = differences.cohens_d([unit * x + origin for x in a], [unit * x + origin for x in b])
    assert moved == pytest.approx(found, rel=1e-6, abs=1e-9)
    assert differences.cohens_d(b, a) == pytest.approx(-found)


@pytest.mark.parametrize(
    ("a", "b", "label"),
    [
        ([1.0, 2.0], [1.0, 3.0], ""),
        ([], [1.0, 3.0], "TP is empty"),
        ([1.0], [1.0, 3.0], "TP has one value"),
        ([1.0, 2.0], [], "FP is empty"),
        ([1.0], [2.0], "TP has one value, FP has one value, no spread"),
        ([4.0, 4.0], [4.0, 4.0], "constant signal"),
        ([4.0, 4.0], [5.0, 5.0], "no spread"),
        ([4.0, 4.0], [5.0, 6.0], ""),
    ],
)
def test_what_keeps_groups_apart_is_named(a, b, label):
    assert differences.degenerate(a, b, ("TP", "FP")) == label


def test_no_spread_gives_no_d():
    assert differences.cohens_d([4.0, 4.0], [5.0, 5.0]) is None
    assert differences.cohens_d([4.0], [5.0]) is None
    assert differences.spread_of([4.0]) is None
    assert differences.spread_of([1.0, 3.0]) == pytest.approx(math.sqrt(2))


def test_bonferroni():
    assert differences.bonferroni(0.01, 7) == pytest.approx(0.07)
    assert differences.bonferroni(0.2, 7) == 1.0
    with pytest.raises(BadInput, match="a family of 0 tests"):
        differences.bonferroni(0.2, 0)


def paired(both_right, only_a, only_b, both_wrong):
    rows = [("yes", "yes", "yes")] * both_right + [("yes", "yes", "no")] * only_a
    rows += [("no", "yes", "no")] * only_b + [("no", "unknown", "yes")] * both_wrong
    return [[row[column] for row in rows] for column in range(3)]


@pytest.mark.parametrize(("method", "p"), [("exact", 0.21875), ("mid-p", 0.125)])
def test_mcnemar_by_hand(method, p):
    # one against five: tail (1 + 6) / 64, twice that is 14/64; the observed count has 6/64
    found = differences.mcnemar(*paired(3, 1, 5, 2), method)
    assert (found.both_right, found.only_a, found.only_b, found.both_wrong) == (3, 1, 5, 2)
    assert (found.p, found.method, found.degenerate) == (pytest.approx(p), method, "")


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_test_of_discordant_pairs(only_a, only_b):
    found = differences.mcnemar(*paired(1, only_a, only_b, 0), "exact")
    turned = differences.mcnemar(*paired(1, only_b, only_a, 0), "exact")
    middle = differences.mcnemar(*paired(1, only_a, only_b, 0), "mid-p")
    assert found.p == turned.p
    assert 0 < middle.p <= found.p <= 1
    if only_a + only_b:
        assert found.p == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue)


def test_mid_p_of_an_even_split_is_one():
    assert differences.mcnemar(*paired(0, 4, 4, 0), "mid-p").p == pytest.approx(1.0)


@pytest.mark.parametrize(("counts", "label"), [((0, 0, 0, 0), "no questions"), ((3, 0, 0, 2), "no discordant pairs")])
@pytest.mark.parametrize("method", ["exact", "mid-p"])
def test_mcnemar_without_discordant_pairs(counts, label, method):
    found = differences.mcnemar(*(paired(*counts) if sum(counts) else ([], [], [])), method)
    assert (found.p, found.degenerate) == (1.0, label)


def test_mcnemar_refuses_other_input():
    with pytest.raises(BadInput, match="McNemar's method 'chi2' is not known"):
        differences.mcnemar(["yes"], ["yes"], ["no"], "chi2")
    with pytest.raises(BadInput, match="answer is 'maybe'"):
        differences.mcnemar(["yes"], ["maybe"], ["no"], "exact")
