"""Numbers as papers print them, and when a recomputed value agrees with one.

Understood are counts and decimals (``1,356``, ``+0.0613``, ``0.760``), percentages (``12.1%``), powers of ten
(``2.05 × 10^-7``), fractions of two counts (``264/326``), words from zero to ten, and versions of software
(``4.40.1``), which have no value.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Number words; the index of a word is its value."""

_COUNT = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER = re.compile(rf"(?P<mantissa>[+-]?{_COUNT}(?:\.(?P<decimals>\d+))?)(?P<unit>%| × 10\^(?P<power>-?\d+))?")
_FRACTION = re.compile(rf"({_COUNT})/({_COUNT})")
_VERSION = re.compile(r"\d+(\.\d+){2,}")
# error of double arithmetic relative to the value, far below any printed digit
_NOISE = Decimal("1e-13")


@dataclass(frozen=True)
class Printed:
    """A printed number.

    Attributes
    ----------
    text : str
        As printed.
    value : Decimal or None
        What it says; None for a version.
    decimals : int
        Printed digits after the decimal point.
    unit : Decimal
        What the digit before the decimal point counts: 1, 0.01 for a percentage, the power of ten.
    parts : tuple of int
        Numerator and denominator of a fraction, else empty.
    """

    text: str
    value: Decimal | None
    decimals: int
    unit: Decimal = Decimal(1)
    parts: tuple[int, ...] = ()

    @property
    def half_unit(self) -> Decimal:
        """Half a unit of the last printed digit."""
        return Decimal(5).scaleb(-self.decimals - 1) * self.unit

    def agrees(self, recomputed: Decimal) -> bool:
        """Whether a correct rounding of a recomputed value may have been printed, ends included."""
        return abs(recomputed - self.value) <= self.half_unit + abs(recomputed) * _NOISE


def read(text: str) -> Printed:
    """Read a printed number; ValueError where it is none of the forms above."""
    if text.lower() in WORDS:
        return Printed(text, Decimal(WORDS.index(text.lower())), 0)
    if fraction := _FRACTION.fullmatch(text):
        parts = tuple(int(part.replace(",", "")) for part in fraction.groups())
        if not parts[1]:
            raise ValueError(f"{text!r} divides by zero")
        return Printed(text, Decimal(parts[0]) / parts[1], 0, parts=parts)
    if _VERSION.fullmatch(text):
        return Printed(text, None, 0)
    number = _NUMBER.fullmatch(text)
    if not number:
        raise ValueError(f"{text!r} is no printed number")
    unit = Decimal(1)
    if number["unit"]:
        unit = Decimal("0.01") if number["unit"] == "%" else Decimal(1).scaleb(int(number["power"]))
    value = Decimal(number["mantissa"].replace(",", "")) * unit
    return Printed(text, value, len(number["decimals"] or ""), unit)
