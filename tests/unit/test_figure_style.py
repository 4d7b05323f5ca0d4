"""The style that all figures share: colours, markers, and labels that keep apart."""

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib.figures import style


def lightness(colour: str, matrix: np.ndarray | None = None) -> float:
    """CIE L* of a colour, after a simulation of colour blindness where a matrix is given."""
    channel = np.asarray(matplotlib.colors.to_rgb(colour))
    linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
    if matrix is not None:
        linear = np.clip(matrix @ linear, 0, 1)
    return float(116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16)


# Machado, Oliveira and Fernandes (2009), severity 1
PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)


@pytest.mark.parametrize("matrix", [None, PROTANOPIA, DEUTERANOPIA], ids=["grey", "protanopia", "deuteranopia"])
def test_colours_differ_in_lightness(matrix):
    values = sorted(lightness(colour, matrix) for colour in style.OUTCOMES.values())
    assert min(np.diff(values)) > 13


def test_colour_is_never_the_only_difference():
    assert len(set(style.HATCHES.values())) == len(style.OUTCOMES)
    assert len({look["marker"] for look in style.SPLITS.values()}) == 3
    lines = [str(look["linestyle"]) for look in (*style.PROTOCOLS.values(), style.TRUTH)]
    assert len(set(lines)) == 3


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ([], []),
        ([0.5], [0.5]),
        ([0.2, 0.8], [0.2, 0.8]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.9, 0.1], [0.9, 0.1]),
        ([0.0, 0.0], [0.0, 0.1]),
        ([1.0, 1.0, 1.0], [0.8, 0.9, 1.0]),
    ],
)
def test_labels_move_apart_by_hand(wanted, places):
    assert style.spread(wanted, 0.1, 0, 1).tolist() == pytest.approx(places)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_spread_labels_keep_their_distance_and_limits(wanted):
    places = style.spread(wanted, 0.07, 0, 1)
    assert np.diff(np.sort(places)).min() >= 0.07 - 1e-9
    assert places.min() >= -1e-9 and places.max() <= 1 + 1e-9
    assert np.array_equal(np.argsort(places, kind="stable"), np.argsort(wanted, kind="stable"))


def test_labels_that_do_not_fit_are_set_closer():
    assert np.diff(style.spread([0.5] * 5, 0.5, 0, 1)).tolist() == pytest.approx([0.25] * 4)


def test_a_constant_gets_an_axis_with_room():
    assert style.limits(pd.Series([2.0, 2.0])) == pytest.approx((1.9, 2.1))
    assert style.limits(pd.Series([0.0])) == (-0.5, 0.5)
