"""Confusion counts, paired transitions between two readouts, and the closed form of their F1 gap.

Everything here is counted; nothing is rounded. A quotient with denominator 0 is 0.0 and the case is named in
`Confusion.degenerate` or `Transition.degenerate`, so no result is ever NaN.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral

from workflow.lib.errors import BadInput

LABELS = ("yes", "no")
ANSWERS = ("yes", "no", "unknown")


def _ratio(numerator: int | Fraction, denominator: int | Fraction) -> float:
    return float(Fraction(numerator) / Fraction(denominator)) if denominator else 0.0


@dataclass(frozen=True)
class Confusion:
    """Counts of answers by label; "yes" is the positive class.

    Attributes
    ----------
    tp, fp, fn, tn : int
        Rows with a verdict: yes on yes, yes on no, no on yes, no on no.
    unknown_yes, unknown_no : int
        Rows without a verdict, by label. They belong to none of the four cells.

    Notes
    -----
    Two conventions treat rows without a verdict. *Wrong* (plain names): they stay in every denominator of
    their label, so they lower recall, F1 and accuracy. *Left out* (names ending in ``_answered``): they are
    removed. Precision is the same under both, and without such rows all metrics are.
    """

    tp: int
    fp: int
    fn: int
    tn: int
    unknown_yes: int = 0
    unknown_no: int = 0

    def __post_init__(self) -> None:
        for name in ("tp", "fp", "fn", "tn", "unknown_yes", "unknown_no"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
                raise BadInput(f"{name} is {value!r} where a count is expected: use integers from 0 upward.")
            object.__setattr__(self, name, int(value))

    @property
    def positives(self) -> int:
        """Rows with label yes, P."""
        return self.tp + self.fn + self.unknown_yes

    @property
    def negatives(self) -> int:
        """Rows with label no, N."""
        return self.fp + self.tn + self.unknown_no

    @property
    def n(self) -> int:
        """All rows."""
        return self.positives + self.negatives

    @property
    def answered(self) -> int:
        """Rows with a verdict."""
        return self.tp + self.fp + self.fn + self.tn

    @property
    def precision(self) -> float:
        """TP / (TP + FP)."""
        return _ratio(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float:
        """TP / P, over all label-yes rows."""
        return _ratio(self.tp, self.positives)

    @property
    def f1(self) -> float:
        """2 TP / (TP + FP + P), the harmonic mean of precision and recall."""
        return _ratio(2 * self.tp, self.tp + self.fp + self.positives)

    @property
    def accuracy(self) -> float:
        """(TP + TN) / n."""
        return _ratio(self.tp + self.tn, self.n)

    @property
    def yes_rate(self) -> float:
        """(TP + FP) / n."""
        return _ratio(self.tp + self.fp, self.n)

    @property
    def recall_answered(self) -> float:
        """TP / (TP + FN)."""
        return _ratio(self.tp, self.tp + self.fn)

    @property
    def f1_answered(self) -> float:
        """2 TP / (2 TP + FP + FN)."""
        return _ratio(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def accuracy_answered(self) -> float:
        """(TP + TN) / (TP + FP + FN + TN)."""
        return _ratio(self.tp + self.tn, self.answered)

    @property
    def yes_rate_answered(self) -> float:
        """(TP + FP) / (TP + FP + FN + TN)."""
        return _ratio(self.tp + self.fp, self.answered)

    @property
    def degenerate(self) -> str:
        """What is degenerate about the rows, "" where nothing is; several cases are joined by ", ".

        "no questions", "no positives", "no negatives" (labels); "no answers" (no verdict at all), "all yes"
        or "all no" (of the verdicts given), "no answered positives" or "no answered negatives" (the label
        occurs, but never with a verdict).
        """
        if not self.n:
            return "no questions"
        cases = []
        if not self.positives:
            cases.append("no positives")
        if not self.negatives:
            cases.append("no negatives")
        if not self.answered:
            return ", ".join([*cases, "no answers"])
        if not self.fn + self.tn:
            cases.append("all yes")
        if not self.tp + self.fp:
            cases.append("all no")
        if self.positives and not self.tp + self.fn:
            cases.append("no answered positives")
        if self.negatives and not self.fp + self.tn:
            cases.append("no answered negatives")
        return ", ".join(cases)


def confusion(labels: Sequence[str], answers: Sequence[str]) -> Confusion:
    """Count answers by label.

    Parameters
    ----------
    labels : sequence of "yes" or "no", length n
    answers : sequence of "yes", "no" or "unknown", length n

    Raises
    ------
    BadInput
        Unlike lengths, or a value outside those named, with its row.
    """
    _check_rows(label=(labels, LABELS), answer=(answers, ANSWERS))
    count = Counter(zip(labels, answers, strict=True))
    return Confusion(
        tp=count["yes", "yes"],
        fp=count["no", "yes"],
        fn=count["yes", "no"],
        tn=count["no", "no"],
        unknown_yes=count["yes", "unknown"],
        unknown_no=count["no", "unknown"],
    )


def _check_rows(**columns: tuple[Sequence[str], tuple[str, ...]]) -> None:
    lengths = {name: len(values) for name, (values, _) in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{count} {name}s" for name, count in lengths.items())
        raise BadInput(f"{listed}: give one of each a row.")
    for name, (values, allowed) in columns.items():
        for row, value in enumerate(values):
            if not isinstance(value, str) or value not in allowed:
                raise BadInput(
                    f"row {row} (counted from 0): {name} is {value!r} where one of {', '.join(allowed)} is expected."
                )


@dataclass(frozen=True)
class Transition:
    """How the answers of one label move from a reference readout to a tested one (a row of Table 7).

    Attributes
    ----------
    label : "yes" or "no"
    yes_yes, yes_no, no_yes, no_no : int
        Reference verdict, then tested verdict.
    unknown : int
        Rows in which either gives no verdict.
    """

    label: str
    yes_yes: int
    yes_no: int
    no_yes: int
    no_no: int
    unknown: int = 0

    @property
    def rate(self) -> str:
        """Name of the flip rate: phi for label yes, rho_N for label no."""
        return "phi" if self.label == "yes" else "rho_N"

    @property
    def numerator(self) -> int:
        """Reference no turned into yes."""
        return self.no_yes

    @property
    def denominator(self) -> int:
        """Reference no with a tested verdict."""
        return self.no_yes + self.no_no

    @property
    def fraction(self) -> Fraction:
        """The flip rate as an exact fraction; 0 where the denominator is 0."""
        return Fraction(self.numerator, self.denominator) if self.denominator else Fraction(0)

    @property
    def value(self) -> float:
        """The flip rate."""
        return float(self.fraction)

    @property
    def degenerate(self) -> str:
        """Why there is no rate: "no positives", "no negatives", "no reference no"; "" where there is one."""
        if not self.yes_yes + self.yes_no + self.no_yes + self.no_no + self.unknown:
            return "no positives" if self.label == "yes" else "no negatives"
        return "" if self.denominator else "no reference no"


def transitions(
    labels: Sequence[str], reference: Sequence[str], tested: Sequence[str]
) -> tuple[Transition, Transition]:
    """Pair two readouts question by question; returns the label-yes row, then the label-no row (Table 7).

    The three sequences have one entry a question, in the same order.
    """
    _check_rows(label=(labels, LABELS), reference=(reference, ANSWERS), tested=(tested, ANSWERS))
    count = Counter(zip(labels, reference, tested, strict=True))

    def row(label: str) -> Transition:
        return Transition(
            label,
            yes_yes=count[label, "yes", "yes"],
            yes_no=count[label, "yes", "no"],
            no_yes=count[label, "no", "yes"],
            no_no=count[label, "no", "no"],
            unknown=sum(count[label, a, b] for a in ANSWERS for b in ANSWERS if "unknown" in (a, b)),
        )

    return row("yes"), row("no")


def closed_form_f1(p: int, n: int, t: int, g: int, rho_n: Fraction | float = 0, phi: Fraction | float = 0) -> float:
    """Return the F1 after shares of a reference readout's no answers turn into yes (Appendix C).

    TP = T + phi (P - T), FP = N - G + rho_N G, FN = (1 - phi)(P - T), F1 = 2 TP / (2 TP + FP + FN). With both
    rates 0 this is the reference's own F1; with phi = 0 alone it is the lower bound of the paper. Equal to
    the tested readout's counted F1 where the rates are counted on the same rows and no yes is read as no.

    Parameters
    ----------
    p, n : int
        Questions with label yes, with label no.
    t, g : int
        True positives and true negatives of the reference.
    rho_n, phi : Fraction or float
        Flipped share of the true negatives, of the false negatives; fractions keep the result exact. 0.0 is
        returned where the denominator is 0.
    """
    rho_n, phi = Fraction(rho_n), Fraction(phi)
    tp, fp = t + phi * (p - t), n - g + rho_n * g
    return _ratio(2 * tp, tp + fp + p)


@dataclass(frozen=True)
class ProtocolGap:
    """Eq. (1) on one split: the F1 gap between a reference and a tested readout, from paired counts.

    ``yes`` and ``no`` are the rows of `transitions`.
    """

    yes: Transition
    no: Transition

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """P, N, T and G: rows by label, and the reference's true positives and true negatives.

        Rows without a verdict of either readout are left out.
        """
        t, false_negatives = self.yes.yes_yes + self.yes.yes_no, self.yes.denominator
        g, false_positives = self.no.denominator, self.no.yes_yes + self.no.yes_no
        return t + false_negatives, g + false_positives, t, g

    @property
    def g_tot(self) -> int:
        """All no answers of the reference, G + (P - T)."""
        return self.yes.denominator + self.no.denominator

    @property
    def yes_to_no(self) -> int:
        """Reference yes read as no: the transitions that Eq. (1) assumes away."""
        return self.yes.yes_no + self.no.yes_no

    @property
    def condition_holds(self) -> bool:
        """Whether Eq. (1) is exact here: no yes is read as no, and every row has both verdicts."""
        return self.yes_to_no == 0 and self.yes.unknown == 0 and self.no.unknown == 0

    @property
    def f1_reference(self) -> float:
        """F1 counted from the reference's answers."""
        return closed_form_f1(*self.counts)

    @property
    def f1_tested(self) -> float:
        """F1 counted from the tested readout's answers, with or without the condition."""
        p, *_ = self.counts
        tp, fp = self.yes.yes_yes + self.yes.no_yes, self.no.yes_yes + self.no.no_yes
        return _ratio(2 * tp, tp + fp + p)

    @property
    def f1_tested_closed_form(self) -> float:
        """F1 of the tested readout by the closed form; equals `f1_tested` where the condition holds."""
        return closed_form_f1(*self.counts, self.no.fraction, self.yes.fraction)

    @property
    def f1_lower_bound(self) -> float:
        """The closed form with phi = 0."""
        return closed_form_f1(*self.counts, self.no.fraction)

    @property
    def pooled_flip_rate(self) -> float:
        """Share of all reference no answers that the tested readout reads as yes."""
        return _ratio(self.yes.no_yes + self.no.no_yes, self.g_tot)

    @property
    def degenerate(self) -> str:
        """Which rates have no denominator, such as "phi: no reference no"; "" where both exist."""
        return ", ".join(f"{row.rate}: {row.degenerate}" for row in (self.no, self.yes) if row.degenerate)

    def f1_transplanted(self, other: "ProtocolGap") -> float:
        """Return the closed form on these counts with the rates of another split."""
        return closed_form_f1(*self.counts, other.no.fraction, other.yes.fraction)


def protocol_gap(labels: Sequence[str], reference: Sequence[str], tested: Sequence[str]) -> ProtocolGap:
    """Return Eq. (1) for two readouts of the same questions; arguments as in `transitions`."""
    return ProtocolGap(*transitions(labels, reference, tested))


def confusion_from_metrics(
    f1: float,
    precision: float,
    recall: float,
    yes_rate: float | None,
    positives: int,
    negatives: int,
    decimals: int = 4,
) -> Confusion:
    """Return the one integer table that published, rounded metrics can come from.

    Every row is taken to have a verdict. A table fits where each of its metrics rounds to the published
    value; a value exactly between two roundings may have gone either way, and 0/0 counts as 0.

    Parameters
    ----------
    f1, precision, recall : float
        As published.
    yes_rate : float or None
        As published; None where it is not, then F1, precision and recall must suffice. At P = N = 1,500 and
        four decimals they do for every table with TP of 324 or more; at TP = 0 they say nothing about FP.
    positives, negatives : int
        P and N.
    decimals : int
        Printed decimals.

    Raises
    ------
    BadInput
        Names the first value that fits no table, in the order recall, yes_rate, precision, f1; or says that
        more than one table fits.
    """
    half = Fraction(1, 2 * 10**decimals)

    def fits(printed: float, numerator: int, denominator: int) -> bool:
        exact = Fraction(numerator, denominator) if denominator else Fraction(0)
        return abs(exact - _exact(printed)) <= half

    def counts(printed: float, whole: int) -> range:
        lowest, highest = ((_exact(printed) + sign * half) * whole for sign in (-1, 1))
        return range(max(0, math.ceil(lowest)), min(whole, math.floor(highest)) + 1)

    def refuse(name: str, printed: float, other: str) -> BadInput:
        return BadInput(
            f"{name} {printed} fits no count of {positives} positives and {negatives} negatives at "
            f"{decimals} decimals{other}: check the value, the numbers of questions and the decimals."
        )

    for name, printed in (("recall", recall), ("yes_rate", yes_rate), ("precision", precision), ("f1", f1)):
        if printed is not None and not 0 <= printed <= 1:
            raise BadInput(f"{name} is {printed} where a number from 0 to 1 is expected: correct it.")
    true_positives = counts(recall, positives)
    if not true_positives:
        raise refuse("recall", recall, "")
    given = f" beside recall {recall}"
    if yes_rate is None:
        tables = [(tp, fp) for tp in true_positives for fp in range(negatives + 1)]
    else:
        yeses = counts(yes_rate, positives + negatives)
        tables = [(tp, yes - tp) for tp in true_positives for yes in yeses if 0 <= yes - tp <= negatives]
        if not tables:
            raise refuse("yes_rate", yes_rate, given)
        given += f" and yes_rate {yes_rate}"
    tables = [(tp, fp) for tp, fp in tables if fits(precision, tp, tp + fp)]
    if not tables:
        raise refuse("precision", precision, given)
    tables = [(tp, fp) for tp, fp in tables if fits(f1, 2 * tp, tp + fp + positives)]
    if not tables:
        raise refuse("f1", f1, f"{given} and precision {precision}")
    if len(tables) > 1:
        shown = " and ".join(f"TP {tp}, FP {fp}" for tp, fp in tables[:2])
        raise BadInput(
            f"f1 {f1}, precision {precision} and recall {recall} fit {len(tables)} tables ({shown}, among "
            "others): give the yes-rate too, or more decimals."
        )
    tp, fp = tables[0]
    return Confusion(tp=tp, fp=fp, fn=positives - tp, tn=negatives - fp)


def _exact(printed: float) -> Fraction:
    """Return the decimal number that was printed, not its binary neighbour."""
    return Fraction(str(float(printed)))
