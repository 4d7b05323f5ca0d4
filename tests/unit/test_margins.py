"""Ties, near-ties at 16 bits and the histogram of margins."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import margins
from workflow.lib.errors import BadInput
from workflow.lib.tokens import LEGACY_8TOK, TokenSet

HALVES = st.floats(-200, 200, width=16)


@pytest.mark.parametrize(
    ("value", "float16", "bfloat16"),
    [
        (24.6875, 2**-6, 2**-3),
        (16.0, 2**-6, 2**-3),
        (15.99, 2**-7, 2**-4),
        (-24.0, 2**-6, 2**-3),
        (1.0, 2**-10, 2**-7),
        (0.0, 2**-24, 2**-133),
        (2.0**-20, 2**-24, 2**-27),
    ],
)
def test_steps_by_hand(value, float16, bfloat16):
    assert margins.step(np.array([value]), "float16").tolist() == [float16]
    assert margins.step(np.array([value]), "bfloat16").tolist() == [bfloat16]


@given(st.floats(-60000, 60000, width=16))
def test_the_float16_step_is_numpys(value):
    assert margins.step(np.array([value]), "float16")[0] == float(np.spacing(np.float16(abs(value))))


@pytest.mark.parametrize(
    ("yes", "no", "near"),
    [
        (24.5, 24.5, True),  # a tie: one step up says yes
        (24.5 + 2**-6, 24.5, True),  # a yes that one step turns into a tie, which says no
        (24.5 + 2**-5, 24.5, False),
        (24.5, 24.5 + 2**-6, False),  # a no that one step only brings to a tie, which says no
        (24.5, 24.5 + 2**-7, True),
    ],
)
def test_near_ties_by_hand(yes, no, near):
    assert margins.near_ties(np.array([yes]), np.array([no]), "float16").tolist() == [near]


@given(HALVES, HALVES)
def test_a_near_tie_is_an_answer_that_one_step_flips(yes, no):
    answer = yes > no
    step = max(margins.step(np.array([value]), "float16")[0] for value in (yes, no))
    flips = any((yes + move > no) != answer or (yes > no + move) != answer for move in (step, -step))
    assert margins.near_ties(np.array([yes]), np.array([no]), "float16").tolist() == [flips]


# below its normal range float16 has even steps, and bfloat16 is the finer format there
NORMAL_HALVES = HALVES.filter(lambda value: abs(value) >= 2**-14)


@given(NORMAL_HALVES, NORMAL_HALVES)
def test_near_ties_of_the_coarser_format_include_those_of_the_finer(yes, no):
    fine, coarse = (margins.near_ties(np.array([yes]), np.array([no]), name)[0] for name in margins.FORMATS)
    assert coarse or not fine


def test_the_histogram_by_hand():
    found = margins.histogram(np.array([-0.5, -0.1, 0.0, 0.25, 0.26, 0.9]), 0.25)
    assert found.to_numpy().tolist() == [
        [-0.75, -0.5, 1],
        [-0.5, -0.25, 0],
        [-0.25, 0.0, 2],  # the tie lies on the side of no
        [0.0, 0.25, 1],
        [0.25, 0.5, 1],
        [0.5, 0.75, 0],
        [0.75, 1.0, 1],
    ]


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=60), st.sampled_from([0.125, 0.25, 1.0]))
def test_the_histogram_counts_every_margin_once(values, width):
    found = margins.histogram(np.array(values), width)
    assert found["count"].sum() == len(values)
    assert found.loc[found["low"] >= 0, "count"].sum() == sum(value > 0 for value in values)
    assert (found["high"].to_numpy()[:-1] == found["low"].to_numpy()[1:]).all()
    assert found["count"].iloc[0] and found["count"].iloc[-1]


def test_no_margins_give_no_bins_and_other_widths_are_refused():
    assert margins.histogram(np.array([]), 0.25).empty
    for width in (0, -1, float("nan")):
        with pytest.raises(BadInput, match="where a number above 0 is expected"):
            margins.histogram(np.array([1.0]), width)


@dataclass
class View:
    """Two rows with the eight LLaMA ids."""

    logits: np.ndarray
    ids: tuple = LEGACY_8TOK.ids
    generated_text: tuple = ()
    returned_text: tuple = ()
    labels: tuple = ()
    dynamic: TokenSet | None = None
    source: str = field(default="rows")


def test_maxima_are_those_that_the_readout_compares():
    order = {token: column for column, token in enumerate(LEGACY_8TOK.ids)}
    logits = np.zeros((2, 8), np.float32)
    logits[0, order[3869]], logits[0, order[694]] = 3.0, 2.0
    logits[1, order[3582]], logits[1, order[1939]] = 20.001, 20.003
    yes, no = margins.maxima("legacy_8tok", View(logits), "as_stored")
    assert yes.tolist() == [3.0, np.float32(20.001)]
    assert no.tolist() == [2.0, np.float32(20.003)]
    yes, no = margins.maxima("legacy_8tok", View(logits), "float16")
    assert (yes[1], no[1]) == (20.0, 20.0)


def test_readouts_without_maxima_and_unknown_formats_are_refused():
    view = View(np.zeros((1, 8), np.float32))
    for name in ("string_parse", "dynamic_logsumexp"):
        with pytest.raises(BadInput, match=f"readout {name} compares no maxima"):
            margins.maxima(name, view, "as_stored")
    with pytest.raises(BadInput, match="format 'float8' is not known"):
        margins.step(np.array([1.0]), "float8")
