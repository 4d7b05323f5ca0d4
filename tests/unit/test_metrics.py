"""Counts, transitions and the closed form, on the first paper's own numbers and as properties."""

import dataclasses
import json
import math
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import metrics
from workflow.lib.errors import BadInput
from workflow.lib.metrics import Confusion, ProtocolGap, Transition

METRICS = (
    "f1", "precision", "recall", "yes_rate", "accuracy",
    "f1_answered", "recall_answered", "accuracy_answered", "yes_rate_answered",
)  # fmt: skip

# split: 8y2y, 8y2n, 8n2y, 8n2n of label yes; the same of label no (Table 7)
TABLE_7 = {
    "adversarial": ((1174, 0, 264, 62), (182, 0, 660, 658)),
    "popular": ((1191, 0, 250, 59), (112, 0, 567, 821)),
    "random": ((1191, 0, 250, 59), (43, 0, 448, 1009)),
}
# split, protocol: F1, precision, recall, yes-rate (Table 2)
TABLE_2 = {
    ("adversarial", "two"): (0.7608, 0.6307, 0.9587, 0.760),
    ("adversarial", "eight"): (0.8221, 0.8658, 0.7827, 0.452),
    ("popular", "two"): (0.7961, 0.6797, 0.9607, 0.707),
    ("popular", "eight"): (0.8498, 0.9140, 0.7940, 0.434),
    ("random", "two"): (0.8397, 0.7459, 0.9607, 0.644),
    ("random", "eight"): (0.8713, 0.9652, 0.7940, 0.411),
}
# TP, TN, FP, FN under the eight-token rule (Table 13)
TABLE_13 = {
    "adversarial": (1174, 1318, 182, 326),
    "popular": (1191, 1388, 112, 309),
    "random": (1191, 1457, 43, 309),
}


def gap_of(split):
    yes, no = TABLE_7[split]
    return ProtocolGap(Transition("yes", *yes), Transition("no", *no))


def rows_of(split):
    """The 3,000 (label, eight-token answer, two-token answer) rows behind Table 7."""
    pairs = (("yes", "yes"), ("yes", "no"), ("no", "yes"), ("no", "no"))
    return [
        (label, *pair)
        for label, counts in zip(("yes", "no"), TABLE_7[split], strict=True)
        for pair, count in zip(pairs, counts, strict=True)
        for _ in range(count)
    ]


@pytest.mark.parametrize("split", TABLE_7)
def test_tables_2_7_and_13_from_rows(split):
    label, eight, two = zip(*rows_of(split), strict=True)
    counted = {"eight": metrics.confusion(label, eight), "two": metrics.confusion(label, two)}
    cells = counted["eight"]
    assert (cells.tp, cells.tn, cells.fp, cells.fn) == TABLE_13[split]
    for protocol, held in counted.items():
        f1, precision, recall, yes_rate = TABLE_2[split, protocol]
        assert (round(held.f1, 4), round(held.precision, 4), round(held.recall, 4)) == (f1, precision, recall)
        assert held.yes_rate == pytest.approx(yes_rate, abs=0.0005 + 1e-12)
        assert (held.n, held.positives, held.negatives, held.degenerate) == (3000, 1500, 1500, "")
    gap = metrics.protocol_gap(label, eight, two)
    assert gap == gap_of(split)
    assert gap.f1_reference == counted["eight"].f1
    assert gap.f1_tested == gap.f1_tested_closed_form == counted["two"].f1


@pytest.mark.parametrize(("split", "phi", "rho", "pooled"), [
    ("adversarial", 0.810, 0.501, 0.562), ("popular", 0.809, 0.409, 0.481), ("random", 0.809, 0.307, 0.395),
])  # fmt: skip
def test_rates(split, phi, rho, pooled):
    gap = gap_of(split)
    assert (gap.yes.rate, gap.no.rate) == ("phi", "rho_N")
    assert (round(gap.yes.value, 3), round(gap.no.value, 3)) == (phi, rho)
    assert round(gap.pooled_flip_rate, 3) == pooled


def test_equation_1_on_the_adversarial_split():
    gap = gap_of("adversarial")
    assert gap.counts == (1500, 1500, 1174, 1318)
    assert (gap.g_tot, gap.yes_to_no, gap.condition_holds) == (1644, 0, True)
    assert gap.f1_lower_bound == 2348 / 3516 and round(gap.f1_lower_bound, 4) == 0.6678
    assert round(gap.f1_reference - gap.f1_tested, 4) == 0.0613


def test_transplanted_rates_miss():
    donor = gap_of("adversarial")
    assert round(gap_of("popular").f1_transplanted(donor), 4) == 0.7690
    assert round(gap_of("random").f1_transplanted(donor), 4) == 0.7761
    assert donor.f1_transplanted(donor) == donor.f1_tested


def test_the_closed_form_takes_printed_rates_too():
    assert metrics.closed_form_f1(1500, 1500, 1191, 1388, 567 / 1388, 250 / 309) == pytest.approx(2882 / 3620)


counts = st.integers(0, 40)


@given(st.lists(counts, min_size=8, max_size=8))
def test_closed_form_is_the_counted_f1_wherever_no_yes_turns_into_no(cells):
    gap = ProtocolGap(Transition("yes", *cells[:4]), Transition("no", *cells[4:]))
    assert gap.condition_holds == (cells[1] == cells[5] == 0)
    if gap.condition_holds:
        assert gap.f1_tested_closed_form == gap.f1_tested
        assert gap.f1_lower_bound <= gap.f1_tested
    values = (
        gap.f1_reference,
        gap.f1_tested,
        gap.f1_tested_closed_form,
        gap.f1_lower_bound,
        gap.pooled_flip_rate,
    )
    assert all(0 <= value <= 1 for value in values)
    assert bool(gap.degenerate) == (not gap.yes.denominator or not gap.no.denominator)


def test_the_closed_form_fails_where_a_yes_turns_into_no():
    gap = ProtocolGap(Transition("yes", 5, 3, 1, 1), Transition("no", 2, 1, 1, 6))
    assert not gap.condition_holds and gap.yes_to_no == 4
    assert gap.f1_tested == 12 / 19  # TP 6, FP 3, FN 4
    assert gap.f1_tested_closed_form == 18 / 23  # as if TP were 9 and FP 4


def test_transitions_keep_rows_without_a_verdict_apart():
    yes, no = metrics.transitions(
        ["yes", "yes", "yes", "no", "no"],
        ["yes", "no", "unknown", "no", "no"],
        ["yes", "yes", "yes", "unknown", "no"],
    )
    assert yes == Transition("yes", yes_yes=1, yes_no=0, no_yes=1, no_no=0, unknown=1)
    assert no == Transition("no", yes_yes=0, yes_no=0, no_yes=0, no_no=1, unknown=1)
    gap = ProtocolGap(yes, no)
    assert not gap.condition_holds and gap.counts == (2, 1, 1, 1)
    whole = Transition("yes", 1, 0, 1, 0), Transition("no", 0, 0, 0, 1)
    assert not ProtocolGap(yes, whole[1]).condition_holds and not ProtocolGap(whole[0], no).condition_holds
    assert ProtocolGap(*whole).condition_holds


@pytest.mark.parametrize(("row", "degenerate"), [
    (Transition("yes", 0, 0, 0, 0), "no positives"),
    (Transition("no", 0, 0, 0, 0), "no negatives"),
    (Transition("no", 4, 1, 0, 0), "no reference no"),
    (Transition("yes", 0, 0, 0, 0, unknown=2), "no reference no"),
    (Transition("yes", 0, 0, 0, 3), ""),
])  # fmt: skip
def test_a_rate_without_denominator_is_labelled(row, degenerate):
    assert (row.degenerate, row.value) == (degenerate, 0.0)


def test_both_conventions_by_hand():
    held = Confusion(tp=3, fp=1, fn=2, tn=4, unknown_yes=5, unknown_no=10)
    assert (held.n, held.answered, held.positives, held.negatives) == (25, 10, 10, 15)
    assert (held.precision, held.recall, held.f1) == (3 / 4, 3 / 10, 6 / 14)
    assert (held.accuracy, held.yes_rate) == (7 / 25, 4 / 25)
    assert (held.recall_answered, held.f1_answered) == (3 / 5, 6 / 9)
    assert (held.accuracy_answered, held.yes_rate_answered) == (7 / 10, 4 / 10)


@given(st.lists(counts, min_size=6, max_size=6))
def test_metrics_are_finite_and_harmonic(cells):
    held = Confusion(*cells)
    values = {name: getattr(held, name) for name in METRICS}
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in values.values())
    for f1, recall in (("f1", "recall"), ("f1_answered", "recall_answered")):
        p, r = values["precision"], values[recall]
        assert values[f1] == pytest.approx(2 * p * r / (p + r) if p + r else 0.0)
    assert values["f1"] <= values["f1_answered"] + 1e-15
    # a quotient without a denominator is always explained
    empty = not (held.tp + held.fp and held.positives and held.tp + held.fn)
    assert not empty or held.degenerate
    if not held.unknown_yes + held.unknown_no:
        assert all(values[name] == values[f"{name}_answered"] for name in ("f1", "recall", "accuracy", "yes_rate"))


@pytest.mark.parametrize(("labels", "answers", "degenerate"), [
    ([], [], "no questions"),
    (["yes"], ["yes"], "no negatives, all yes"),
    (["yes"], ["no"], "no negatives, all no"),
    (["no"], ["yes"], "no positives, all yes"),
    (["no"], ["unknown"], "no positives, no answers"),
    (["yes", "no"], ["yes", "yes"], "all yes"),
    (["yes", "no"], ["no", "no"], "all no"),
    (["yes", "no"], ["unknown", "unknown"], "no answers"),
    (["yes", "no", "no"], ["unknown", "yes", "no"], "no answered positives"),
    (["yes", "yes", "no"], ["no", "yes", "unknown"], "no answered negatives"),
    (["yes", "no"], ["yes", "no"], ""),
])  # fmt: skip
def test_degenerate_groups_are_labelled(labels, answers, degenerate):
    held = metrics.confusion(labels, answers)
    assert held.degenerate == degenerate
    assert all(math.isfinite(getattr(held, name)) for name in METRICS)


def test_all_yes_is_the_papers_floor():
    held = Confusion(tp=1500, fp=1500, fn=0, tn=0)
    assert (round(held.f1, 4), held.precision, held.recall, held.yes_rate) == (0.6667, 0.5, 1.0, 1.0)
    assert Confusion(tp=0, fp=0, fn=1500, tn=1500).f1 == 0.0


@pytest.mark.parametrize(("labels", "answers", "message"), [
    (["yes"], ["yes", "no"], "1 labels, 2 answers: give one of each a row"),
    (["yes", "Yes"], ["yes", "no"], r"row 1 \(counted from 0\): label is 'Yes' where one of yes, no is"),
    (["yes"], [None], "row 0 .* answer is None where one of yes, no, unknown is expected"),
    (["yes"], pd.Series([float("nan")]), "row 0 .* answer is nan where"),
])  # fmt: skip
def test_rows_that_cannot_be_counted_are_refused(labels, answers, message):
    with pytest.raises(BadInput, match=message):
        metrics.confusion(labels, answers)


@pytest.mark.parametrize("cell", [-1, 1.5, 2.0, True, math.nan, "3"])
def test_cells_are_counts(cell):
    with pytest.raises(BadInput, match=r"tp is .* where a count is expected"):
        Confusion(tp=cell, fp=0, fn=0, tn=0)


def rounded(held, decimals=4):
    return {name: round(getattr(held, name), decimals) for name in ("f1", "precision", "recall", "yes_rate")}


@given(st.integers(0, 1500), st.integers(0, 1500))
def test_four_decimals_give_back_the_one_table(tp, fp):
    held = Confusion(tp=tp, fp=fp, fn=1500 - tp, tn=1500 - fp)
    assert metrics.confusion_from_metrics(**rounded(held), positives=1500, negatives=1500) == held


@given(st.integers(0, 1500), st.integers(0, 1500))
def test_without_the_yes_rate_never_a_wrong_table(tp, fp):
    held = Confusion(tp=tp, fp=fp, fn=1500 - tp, tn=1500 - fp)
    printed = rounded(held) | {"yes_rate": None}
    try:
        assert metrics.confusion_from_metrics(**printed, positives=1500, negatives=1500) == held
    except BadInput as problem:
        assert "tables (TP" in str(problem)
        assert tp < 324  # from there on three printed values settle every table


def test_three_printed_metrics_suffice_for_table_2():
    for (split, protocol), (f1, precision, recall, _) in TABLE_2.items():
        yes, no = TABLE_7[split]
        tp, fp = (yes[0], no[0]) if protocol == "eight" else (yes[0] + yes[2], no[0] + no[2])
        got = metrics.confusion_from_metrics(f1, precision, recall, None, 1500, 1500)
        assert (got.tp, got.fp, got.fn, got.tn) == (tp, fp, 1500 - tp, 1500 - fp)


def test_an_all_no_column_needs_the_yes_rate():
    with pytest.raises(BadInput, match=r"fit 1501 tables \(TP 0, FP 0 and TP 0, FP 1, among others\)"):
        metrics.confusion_from_metrics(0.0, 0.0, 0.0, None, 1500, 1500)
    # Qwen2-VL, adversarial, eight-token: a single false positive
    got = metrics.confusion_from_metrics(0.0, 0.0, 0.0, 0.0003, 1500, 1500)
    assert (got.tp, got.fp, got.fn, got.tn) == (0, 1, 1500, 1499)


@pytest.mark.parametrize(("change", "message"), [
    ({"recall": 0.7825}, "recall 0.7825 fits no count of 1500 positives and 1500 negatives at 4 decimals:"),
    ({"yes_rate": 0.4521}, "yes_rate 0.4521 fits no count .* beside recall 0.7827"),
    ({"yes_rate": 0.2}, "yes_rate 0.2 fits no count"),
    ({"precision": 0.8659}, "precision 0.8659 fits no count .* beside recall 0.7827 and yes_rate 0.452:"),
    ({"f1": 0.8222}, "f1 0.8222 fits no count .* and precision 0.8658"),
    ({"f1": math.nan}, "f1 is nan where a number from 0 to 1 is expected"),
    ({"recall": 1.2}, "recall is 1.2 where"),
])  # fmt: skip
def test_the_value_that_does_not_fit_is_named(change, message):
    printed = {"f1": 0.8221, "precision": 0.8658, "recall": 0.7827, "yes_rate": 0.452} | change
    with pytest.raises(BadInput, match=message):
        metrics.confusion_from_metrics(**printed, positives=1500, negatives=1500)


def test_a_value_between_two_roundings_may_have_gone_either_way():
    # TP 1 of 8 is 0.125
    for printed in (0.12, 0.13):
        got = metrics.confusion_from_metrics(0.22, 1.0, printed, 0.06, positives=8, negatives=8, decimals=2)
        assert (got.tp, got.fp) == (1, 0)
    # TP 1 of 8 yes answers is 0.125 as well
    for printed in (0.12, 0.13):
        got = metrics.confusion_from_metrics(0.11, printed, 0.1, 0.4, positives=10, negatives=10, decimals=2)
        assert (got.tp, got.fp) == (1, 7)


def test_all_published_cells_of_the_four_other_models(shared_data):
    results = json.loads((shared_data / "released" / "multi_model_results.json").read_text())["results"]
    cells = [block for model in results.values() for split in model["splits"].values() for block in split.values()]
    assert len(cells) == 48
    for printed in cells:
        got = metrics.confusion_from_metrics(**printed, positives=1500, negatives=1500)
        assert rounded(got) == printed
        assert (got.tp, got.tp + got.fp) == (
            round(printed["recall"] * 1500),
            round(printed["yes_rate"] * 3000),
        )
        if got.tp:
            assert metrics.confusion_from_metrics(**printed | {"yes_rate": None}, positives=1500, negatives=1500) == got


def test_records_are_frozen_and_exact():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Confusion(1, 1, 1, 1).tp = 2
    assert Transition("no", 0, 0, 660, 658).fraction == Fraction(330, 659)
