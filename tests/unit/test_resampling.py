"""Bootstrap: the paper's draws, scipy's distribution, exact small cases, coverage and degenerate data."""

from collections import Counter
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workflow.lib import metrics, resampling
from workflow.lib.errors import BadInput
from workflow.lib.metrics import Confusion

ANSWERS = st.sampled_from(metrics.ANSWERS)
QUESTIONS = st.lists(st.tuples(st.sampled_from(metrics.LABELS), ANSWERS, ANSWERS), min_size=1, max_size=40)


def rng(seed=42):
    return np.random.default_rng(seed)


def columns(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def words(tp=0, fp=0, fn=0, tn=0, unknown_yes=0, unknown_no=0):
    cells = (("yes", "yes", tp), ("no", "yes", fp), ("yes", "no", fn), ("no", "no", tn))
    unknown = (("yes", "unknown", unknown_yes), ("no", "unknown", unknown_no))
    return columns((label, answer) for label, answer, n in (*cells, *unknown) for _ in range(n))


def as_written(a, b, resamples, generator):
    """The loop of the first paper: choice from a, then choice from b."""
    means = []
    for _ in range(resamples):
        drawn = generator.choice(a, size=len(a), replace=True), generator.choice(b, size=len(b), replace=True)
        means.append(drawn[0].mean() - drawn[1].mean())
    return np.array(means)


@pytest.mark.parametrize(("n_a", "n_b"), [(1, 2), (2, 3), (7, 5), (183, 64), (300, 1)])
@pytest.mark.parametrize("resamples", [1, 99, 250])
def test_means_are_drawn_in_the_order_of_the_paper(n_a, n_b, resamples):
    a, b = rng(1).normal(1, 1, n_a), rng(2).normal(0, 2, n_b)
    ours, theirs = rng(), rng()
    interval = resampling.difference_of_means(a, b, resamples, 0.9, ours)
    wanted = as_written(a, b, resamples, theirs)
    assert (interval.low, interval.high) == tuple(np.percentile(wanted, [5, 95]))
    assert interval.estimate == a.mean() - b.mean()
    assert ours.bit_generator.state == theirs.bit_generator.state


def test_two_groups_of_constants_have_an_interval_of_no_width():
    interval = resampling.difference_of_means([3.0] * 4, [1.0] * 3, 50, 0.95, rng())
    assert (interval.estimate, interval.low, interval.high) == (2.0, 2.0, 2.0)
    assert interval.degenerate == "constant groups"


def test_two_values_by_hand():
    # a resample of (0, 1) has mean 0, 1/2 or 1, so the outer percentiles are 0 and 1
    interval = resampling.difference_of_means([0.0, 1.0], [0.0], 1000, 0.95, rng())
    assert (interval.estimate, interval.low, interval.high) == (0.5, 0.0, 1.0)
    assert interval.degenerate == "second group has one value"


@pytest.mark.parametrize(
    ("a", "b", "label"),
    [
        ([], [1.0, 2.0], "first group is empty"),
        ([1.0], [], "first group has one value, second group is empty"),
        ([], [], "first group is empty, second group is empty"),
    ],
)
def test_empty_groups_have_no_interval_and_draw_nothing(a, b, label):
    generator = rng()
    interval = resampling.difference_of_means(a, b, 10, 0.95, generator)
    assert (interval.estimate, interval.low, interval.high, interval.degenerate) == (None, None, None, label)
    assert generator.bit_generator.state == rng().bit_generator.state


@pytest.mark.parametrize("level", [0, 1, 95, -0.1, float("nan")])
def test_other_levels_are_refused(level):
    with pytest.raises(BadInput, match=r"level .* where a number between 0 and 1"):
        resampling.difference_of_means([1.0, 2.0], [1.0], 10, level, rng())
    with pytest.raises(BadInput, match=r"level .* where a number between 0 and 1"):
        resampling.f1_interval(resampling.outcomes_of_counts(Confusion(1, 1, 1, 1)), level, 10, rng())


@pytest.mark.parametrize("resamples", [0, -1, 2.5, True])
def test_other_numbers_of_resamples_are_refused(resamples):
    with pytest.raises(BadInput, match="where a whole number from 1 upward"):
        resampling.difference_of_means([1.0, 2.0], [1.0], resamples, 0.95, rng())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(BadInput, match="second group is not a list of finite numbers"):
        resampling.difference_of_means([1.0], [value], 10, 0.95, rng())


def test_the_interval_of_means_covers_as_often_as_it_says():
    generator = rng(7)
    covered = 0
    for _ in range(300):
        a, b = generator.normal(1.0, 1, 60), generator.normal(0.5, 1, 40)
        interval = resampling.difference_of_means(a, b, 200, 0.9, generator)
        covered += interval.low <= 0.5 <= interval.high
    # 270 expected; five binomial deviations are 26
    assert 244 <= covered <= 296


def test_f1_by_hand():
    counts = np.array([[3, 1, 2, 5, 0, 0], [3, 1, 2, 5, 4, 9], [0, 0, 0, 5, 0, 1]])
    assert resampling.f1(counts).tolist() == [6 / 9, 6 / 13, 0.0]


@given(QUESTIONS)
def test_f1_is_that_of_the_metrics(rows):
    labels, first, second = columns(rows)
    held = resampling.outcomes(labels, first, second, unit="question")
    wanted = [metrics.confusion(labels, given).f1 for given in (first, second)]
    assert resampling.f1(held.totals).tolist() == wanted


@given(QUESTIONS, st.integers(1, 5))
def test_images_hold_what_their_questions_hold(rows, per_image):
    labels, first, second = columns(rows)
    images = [f"image {number // per_image}" for number in range(len(rows))]
    by_question = resampling.outcomes(labels, first, second, unit="question")
    by_image = resampling.outcomes(labels, first, second, unit="image", images=images)
    assert by_question.units == len(rows)
    assert by_image.units == len(set(images))
    assert (by_image.totals == by_question.totals).all()
    one_each = resampling.outcomes(labels, first, second, unit="image", images=list(range(len(rows))))
    assert one_each.units == len(rows)
    assert (one_each.totals == by_question.totals).all()


def test_images_by_hand():
    labels = ["yes", "no", "yes", "no", "yes", "no"]
    answers = ["yes", "yes", "yes", "yes", "no", "no"]
    held = resampling.outcomes(labels, answers, unit="image", images=["a", "a", "b", "b", "c", "c"])
    found = {
        tuple(pattern): times
        for pattern, times in zip(held.patterns[:, 0].tolist(), held.multiplicity.tolist(), strict=True)
    }
    assert found == {(1, 1, 0, 0, 0, 0): 2, (0, 0, 1, 1, 0, 0): 1}
    # a resample holds k of the two equal images, k from 0 to 3: TP = FP = k, FN = 3 - k
    drawn = held.resampled(500, rng())[:, 0]
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert (drawn[:, 0] + drawn[:, 2] == 3).all()
    assert set(drawn[:, 0].tolist()) == {0, 1, 2, 3}


def test_resamples_of_questions_have_their_exact_probabilities():
    # four questions in three cells: a resample is multinomial(4; 1/2, 1/4, 1/4)
    labels, answers = words(tp=2, fp=1, fn=1)
    draws = 20_000
    drawn = resampling.outcomes(labels, answers, unit="question").resampled(draws, rng(3))[:, 0, :3]
    seen = Counter(map(tuple, drawn.tolist()))
    compositions = [(i, j, 4 - i - j) for i in range(5) for j in range(5 - i)]
    expected = [
        draws * factorial(4) / np.prod([factorial(k) for k in cells]) * 0.5 ** cells[0] * 0.25 ** (4 - cells[0])
        for cells in compositions
    ]
    assert set(seen) <= set(compositions)
    assert stats.chisquare([seen[cells] for cells in compositions], expected).pvalue > 1e-4


def test_the_metric_gives_the_distribution_of_scipy_on_its_own_resamples():
    labels, answers = words(tp=9, fp=4, fn=3, tn=8, unknown_yes=2, unknown_no=1)
    labels, answers = np.array(labels, dtype=object), np.array(answers, dtype=object)
    drawn = []

    def by_rows(indices, axis):
        resample = indices.astype(int)
        if resample.ndim == 1:
            return metrics.confusion(labels[resample].tolist(), answers[resample].tolist()).f1
        drawn.extend(resample)
        return np.array([metrics.confusion(labels[row].tolist(), answers[row].tolist()).f1 for row in resample])

    found = stats.bootstrap(
        (np.arange(len(labels)),),
        by_rows,
        n_resamples=400,
        vectorized=True,
        method="percentile",
        confidence_level=0.9,
        rng=rng(5),
    )
    indices = np.array(drawn[-400:])
    counts = np.array(
        [resampling.outcomes(labels[row].tolist(), answers[row].tolist(), unit="question").totals[0] for row in indices]
    )
    assert resampling.f1(counts).tolist() == found.bootstrap_distribution.tolist()
    assert resampling.percentiles(resampling.f1(counts), 0.9) == tuple(found.confidence_interval)


def test_the_interval_agrees_with_scipy_up_to_monte_carlo_error():
    labels, answers = words(tp=120, fp=30, fn=25, tn=125)
    codes = np.repeat(np.arange(4), [120, 30, 25, 125])

    def f1(x, axis):
        tp, fp, fn = ((x == code).sum(axis=axis) for code in range(3))
        return 2 * tp / (2 * tp + fp + fn)

    theirs = stats.bootstrap((codes,), f1, n_resamples=4000, method="percentile", rng=rng(1))
    ours = resampling.f1_interval(resampling.outcomes(labels, answers, unit="question"), 0.95, 4000, rng(2))
    # the percentiles' standard error at 4,000 resamples is about 0.04 of the spread, from either side
    tolerance = 0.3 * theirs.standard_error
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=tolerance)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=tolerance)


@given(QUESTIONS)
def test_two_equal_readouts_have_no_gap(rows):
    labels, answers, _ = columns(rows)
    held = resampling.outcomes(labels, answers, answers, unit="question")
    interval = resampling.f1_gap_interval(held, 0.9, 30, rng())
    assert (interval.estimate, interval.low, interval.high) == (0.0, 0.0, 0.0)


@given(QUESTIONS)
def test_swapping_the_readouts_turns_the_gap_round(rows):
    labels, first, second = columns(rows)
    gap, turned = (
        resampling.f1_gap_interval(resampling.outcomes(labels, *pair, unit="question"), 0.9, 30, rng())
        for pair in ((first, second), (second, first))
    )
    assert gap.estimate == -turned.estimate
    assert -1 <= gap.low <= gap.high <= 1


@pytest.mark.parametrize("unit", resampling.UNITS)
def test_the_interval_of_f1_covers_as_often_as_it_says(unit):
    # questions of one image share a difficulty, which only the image as the unit takes into account
    generator = rng(11)
    trials, images, per_image = 200, 60, 4

    def sample(number):
        hard = np.repeat(generator.random(number) < 0.5, per_image)
        labels = np.where(np.arange(number * per_image) % 2, "no", "yes")
        right = generator.random(number * per_image) < np.where(hard, 0.4, 1.0)
        answers = np.where(right, labels, np.where(labels == "yes", "no", "yes"))
        return labels.tolist(), answers.tolist(), np.repeat(np.arange(number), per_image).tolist()

    truth = metrics.confusion(*sample(100_000)[:2]).f1
    covered = 0
    for _ in range(trials):
        labels, answers, of_image = sample(images)
        held = resampling.outcomes(labels, answers, unit=unit, images=of_image)
        interval = resampling.f1_interval(held, 0.9, 300, generator)
        covered += interval.low <= truth <= interval.high
    share = covered / trials
    if unit == "image":
        assert 0.82 <= share <= 0.96
    else:
        assert share < 0.82


@pytest.mark.parametrize(
    ("counts", "estimate", "label"),
    [
        ({"tp": 1}, 1.0, "one question, no negatives, all yes"),
        ({"tp": 3, "fp": 3}, 6 / 9, "all yes"),
        ({"fn": 3, "tn": 3}, 0.0, "all no"),
        ({"fp": 2, "tn": 3}, 0.0, "no positives"),
        ({"tp": 2, "fn": 3}, 4 / 7, "no negatives"),
        ({"unknown_yes": 2, "unknown_no": 3}, 0.0, "no answers"),
    ],
)
def test_degenerate_outcomes_are_labelled_and_finite(counts, estimate, label):
    labels, answers = words(**counts)
    for held in (
        resampling.outcomes(labels, answers, unit="question"),
        resampling.outcomes_of_counts(Confusion(**{"tp": 0, "fp": 0, "fn": 0, "tn": 0} | counts)),
    ):
        interval = resampling.f1_interval(held, 0.95, 200, rng())
        assert (interval.estimate, interval.degenerate) == (estimate, label)
        assert 0 <= interval.low <= interval.high <= 1


def test_resamples_without_a_defined_f1_count_as_zero_and_are_counted():
    # one positive among two questions: a resample misses it, and has nothing but a true no, one time in four
    labels, answers = words(tp=1, tn=1)
    interval = resampling.f1_interval(resampling.outcomes(labels, answers, unit="question"), 0.95, 4000, rng())
    assert (interval.low, interval.high) == (0.0, 1.0)
    assert 850 <= interval.degenerate_resamples <= 1150


@pytest.mark.parametrize("unit", resampling.UNITS)
def test_no_questions_give_no_interval(unit):
    held = resampling.outcomes([], [], unit=unit, images=[])
    interval = resampling.f1_interval(held, 0.95, 10, rng())
    assert (interval.estimate, interval.low, interval.high) == (0.0, None, None)
    assert interval.degenerate == "no questions"


def test_one_image_is_labelled_and_never_varies():
    held = resampling.outcomes(["yes", "no"], ["yes", "yes"], unit="image", images=["a", "a"])
    interval = resampling.f1_interval(held, 0.95, 10, rng())
    assert (interval.low, interval.high) == (2 / 3, 2 / 3)
    assert interval.degenerate == "one image, all yes"


def test_counts_alone_give_the_interval_of_the_answers():
    counted = Confusion(30, 10, 5, 40)
    labels, answers = words(30, 10, 5, 40)
    held = resampling.outcomes(labels, answers, unit="question")
    from_counts, from_answers = (
        resampling.f1_interval(given, 0.95, 5000, rng()) for given in (resampling.outcomes_of_counts(counted), held)
    )
    assert (from_counts.low, from_counts.high) == (from_answers.low, from_answers.high)


def test_units_and_rows_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="resampling unit 'object' is not known: use question or image"):
        resampling.outcomes(["yes"], ["yes"], unit="object")
    with pytest.raises(BadInput, match="1 questions need 1 images to resample images, got none"):
        resampling.outcomes(["yes"], ["yes"], unit="image")
    with pytest.raises(BadInput, match="2 questions need 2 images to resample images, got 1"):
        resampling.outcomes(["yes", "no"], ["yes", "no"], unit="image", images=["a"])
    with pytest.raises(BadInput, match=r"row 1 \(counted from 0\): answer is 'maybe'"):
        resampling.outcomes(["yes", "no"], ["yes", "maybe"], unit="question")
    with pytest.raises(BadInput, match="2 labels, 1 answers"):
        resampling.outcomes(["yes", "no"], ["yes"], unit="question")
    with pytest.raises(TypeError):
        resampling.outcomes(["yes"], ["yes"])


def test_a_gap_needs_two_readouts():
    one = resampling.outcomes(["yes"], ["yes"], unit="question")
    with pytest.raises(ValueError, match="outcomes of 1 readouts where 2 are expected"):
        resampling.f1_gap_interval(one, 0.95, 10, rng())
