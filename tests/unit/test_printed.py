"""Printed numbers: their forms, values and the last printed digit."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import printed


@pytest.mark.parametrize(
    ("text", "value", "decimals", "half_unit"),
    [
        ("1,356", "1356", 0, "0.5"),
        ("132923", "132923", 0, "0.5"),
        ("+0.0613", "0.0613", 4, "0.00005"),
        ("-0.46", "-0.46", 2, "0.005"),
        ("0.760", "0.760", 3, "0.0005"),
        ("12.1%", "0.121", 1, "0.0005"),
        ("95%", "0.95", 0, "0.005"),
        ("2.05 × 10^-7", "2.05E-7", 2, "5E-10"),
        ("nine", "9", 0, "0.5"),
        ("Nine", "9", 0, "0.5"),
        ("zero", "0", 0, "0.5"),
        ("264/326", str(Decimal(264) / 326), 0, "0.5"),
    ],
)
def test_forms(text, value, decimals, half_unit):
    number = printed.read(text)
    assert number.value == Decimal(value)
    assert (number.decimals, number.half_unit) == (decimals, Decimal(half_unit))
    assert number.text == text


def test_a_fraction_keeps_its_counts():
    assert printed.read("2,882/3,620").parts == (2882, 3620)
    assert printed.read("0.5").parts == ()


def test_a_version_has_no_value():
    assert printed.read("4.40.1").value is None
    assert printed.read("4.40").value == Decimal("4.40")


@pytest.mark.parametrize(
    "text", ["", "76 %", "1,35", "eleven", "2.05 x 10^-7", "264/", "5/0", "1.5-7", "F1", "1e-3", "--1"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError):
        printed.read(text)


@pytest.mark.parametrize(
    ("text", "recomputed", "agrees"),
    [
        ("12.1%", "0.12133333", True),
        ("12.1%", "0.1206", True),
        ("12.1%", "0.12049", False),
        ("2.05 × 10^-7", "2.0522e-7", True),
        ("2.05 × 10^-7", "2.0551e-7", False),
        # a fixed tolerance for the error of doubles would accept every p-value
        ("1.22 × 10^-93", "1.31e-93", False),
        ("1.22 × 10^-93", "0", False),
        ("nine", "8", False),
        ("0.7608", "0.76085", True),
        ("0.7608", "0.760850001", False),
    ],
)
def test_the_last_printed_digit_decides(text, recomputed, agrees):
    assert printed.read(text).agrees(Decimal(recomputed)) is agrees


@given(st.integers(1, 9999), st.integers(-90, -5))
def test_every_correct_rounding_of_a_power_of_ten_agrees(digits, power):
    value = Decimal(digits).scaleb(power)
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    number = printed.read(f"{mantissa} × 10^{int(exponent)}")
    assert number.agrees(value)
    assert not number.agrees(value + 3 * number.half_unit)
