"""Corrections as readouts: by hand, their properties for any beta, and Table 8."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import corrections, files, signals
from workflow.lib.errors import BadInput
from workflow.lib.tables import table8

METADATA = {"study": "mini", "model": "llava15", "split": "adversarial", "basis": "model"}
GATES = [method for method in corrections.METHODS.values() if method.kind == "gate"]
LOGITS = st.floats(-30, 30, width=16)
ROWS = st.lists(st.tuples(LOGITS, LOGITS, st.floats(0, 1, width=32), LOGITS, LOGITS), min_size=1, max_size=12)
BETAS = st.floats(0, 8, allow_nan=False)


def frame(rows):
    """Signals in which every certainty is the same number, and every second pass too."""
    yes, no, certainty, noise_yes, noise_no = (np.array(column, np.float32) for column in zip(*rows, strict=True))
    held = {
        "label": ["yes", "no"] * (len(rows) // 2) + ["yes"] * (len(rows) % 2),
        "yes_max": yes,
        "no_max": no,
    }
    held |= dict.fromkeys(signals.CERTAINTIES, certainty)
    held |= {name: noise_yes if "yes" in name else noise_no for name in signals.CONTRASTS}
    return pd.DataFrame(held)


def every(kinds=("gate", "contrast")):
    return [
        (method.name, variant)
        for method in corrections.METHODS.values()
        for variant in method.reads
        if method.kind in kinds
    ]


def test_a_gate_by_hand():
    # gap 1 at certainty 1/4: beta 1 leaves 1/4, beta 4/3 leaves 0, which is a tie and says no
    held = frame([(25.0, 24.0, 0.25, 0.0, 0.0)])
    assert corrections.scores("clip_b_certainty", held, 1.0).tolist() == [0.25]
    assert corrections.read("clip_b_certainty", held, 1.0).tolist() == ["yes"]
    assert corrections.gate_scores([1.0], [0.0], [0.5], 2.0).tolist() == [0.0]
    assert corrections.read("uniform", held, 2.0).tolist() == ["no"]
    assert corrections.read("uniform", held, 1.99).tolist() == ["yes"]


def test_the_contrast_by_hand():
    held = frame([(25.0, 24.0, 0.0, 3.0, 2.25)])
    assert corrections.scores("vcd", held, 1.0).tolist() == [0.25]
    assert corrections.scores("vcd", held, 2.0).tolist() == [-0.5]
    # a second pass that says no more strongly turns a no into a yes
    assert corrections.read("vcd", frame([(24.0, 24.5, 0.0, 1.0, 2.0)]), 1.0).tolist() == ["yes"]


@given(ROWS)
def test_beta_zero_is_the_baseline(rows):
    held = frame(rows)
    wanted = np.where(held["yes_max"] > held["no_max"], "yes", "no").tolist()
    assert corrections.read("baseline", held, 3.0).tolist() == wanted
    for name, variant in every():
        assert corrections.read(name, held, 0.0, variant).tolist() == wanted


@given(ROWS, BETAS)
def test_a_gate_never_turns_a_no_into_a_yes(rows, beta):
    held = frame(rows)
    before = corrections.read("baseline", held, 0.0) == "yes"
    for name, variant in every(["gate"]):
        after = corrections.read(name, held, beta, variant) == "yes"
        assert not (after & ~before).any()


@given(ROWS, BETAS, BETAS)
def test_a_stronger_gate_says_yes_less_often(rows, one, other):
    held = frame(rows)
    for name, variant in every(["gate"]):
        weak, strong = (corrections.read(name, held, beta, variant) == "yes" for beta in sorted([one, other]))
        assert not (strong & ~weak).any()


@given(ROWS, BETAS)
def test_certainty_one_switches_a_gate_off(rows, beta):
    held = frame([(yes, no, 1.0, *rest) for yes, no, _, *rest in rows])
    wanted = corrections.read("baseline", held, 0.0).tolist()
    for name, variant in every(["gate"]):
        if name != "uniform":
            assert corrections.read(name, held, beta, variant).tolist() == wanted


@given(ROWS, st.floats(-8, 8, allow_nan=False))
def test_scores_are_linear_in_beta(rows, beta):
    held = frame(rows)
    for name, variant in every():
        zero, one, found = (corrections.scores(name, held, given, variant) for given in (0, 1, beta))
        np.testing.assert_allclose(found, zero + beta * (one - zero), atol=1e-9)


def test_the_registry_has_the_papers_rows_in_its_order():
    printed = [
        method.printed(beta) for method in corrections.METHODS.values() for beta in method.betas if method.tabled
    ]
    assert printed == [
        "Eight-token baseline",
        "CLIP-B/32 certainty (β = 1.0)",
        "CLIP-B/32 certainty (β = 1.5)",
        "CLIP-L/14-336 certainty",
        "Entropy gating",
        "Magnitude gating",
        "CLS feature similarity",
        "Object-noun CLIP",
        "Uniform suppression",
        "VCD-noise perturbation",
    ]
    assert [name for name, method in corrections.METHODS.items() if not method.tabled] == ["midpoint_certainty"]


def test_every_signal_that_a_correction_reads_can_be_stored_and_the_reverse():
    read = {name for method in corrections.METHODS.values() for names in method.reads.values() for name in names}
    assert read == {*signals.CERTAINTIES, *signals.CONTRASTS}


def test_methods_with_two_definitions_say_how_they_differ():
    for method in corrections.METHODS.values():
        assert not ("paper" in method.reads and not method.difference)
        assert set(method.reads) <= set(corrections.VARIANTS)
    assert {method.name for method in GATES if method.reads == {"as run": ()}} == {"uniform"}


def test_unknown_names_variants_signals_and_betas_are_refused():
    held = frame([(1.0, 0.0, 0.5, 0.0, 0.0)])
    with pytest.raises(BadInput, match="correction 'clip_c' is not known: use one of baseline, clip_b_certainty"):
        corrections.read("clip_c", held, 1.0)
    with pytest.raises(BadInput, match="correction uniform has no variant 'paper': use as run"):
        corrections.read("uniform", held, 1.0, "paper")
    with pytest.raises(BadInput, match=r"vcd \(paper\) needs signal vcd_yes_max_paper, which was not measured"):
        corrections.read("vcd", held.drop(columns="vcd_yes_max_paper"), 1.0, "paper")
    for beta in (float("nan"), float("inf"), True):
        with pytest.raises(BadInput, match=r"beta .* where a finite number is expected"):
            corrections.read("uniform", held, beta)
    for certainty in (1.5, -0.5, float("nan")):
        with pytest.raises(BadInput, match="certainty is outside 0 to 1"):
            corrections.gate_scores([1.0], [0.0], [certainty], 1.0)


def test_a_sweep_counts_what_it_reads():
    held = frame([(1.0, 0.0, 0.5, 0.0, 0.0), (0.25, 0.0, 0.5, 0.0, 0.0), (0.0, 1.0, 0.5, 0.0, 0.0)])
    found = corrections.sweep(held[["label", "yes_max", "no_max"]], [1.0, 0.0])
    assert found.to_numpy().tolist() == [
        ["baseline", 0.0, "as run", 1, 1, 1, 0],
        ["uniform", 0.0, "as run", 1, 1, 1, 0],
        ["uniform", 1.0, "as run", 1, 0, 1, 1],
    ]
    assert len(corrections.sweep(held)) == 1 + 2 * 2 + 1 + 4 * 2 + 1 + 2 + 1


def test_corrections_of_no_questions_are_labelled(tmp_path):
    held = pd.DataFrame({"label": [], "yes_max": [], "no_max": []}, dtype=object)
    found = corrections.table([(held, METADATA)], [], "mini")
    assert set(found["degenerate"]) == {"no questions"}
    assert set(found["f1"]) == {0.0}
    files.write_csv(found, tmp_path / "c.csv")


def released(**changes):
    row = {
        "study": "mini",
        "model": "llava15",
        "split": "adversarial",
        "method": "baseline",
        "beta": 0.0,
        "variant": "as run",
    }
    return pd.DataFrame([row | {"tp": 1, "fp": 0, "fn": 1, "tn": 1} | changes])


def test_the_table_lists_released_summaries_before_signals():
    held = frame([(1.0, 0.0, 0.5, 0.0, 0.0), (0.25, 0.0, 0.5, 0.0, 0.0), (0.0, 1.0, 0.5, 0.0, 0.0)])
    found = corrections.table([(held[["label", "yes_max", "no_max"]], METADATA)], [released()], "mini")
    assert tuple(found) == corrections.COLUMNS
    assert found[["method", "basis", "tp"]].to_numpy().tolist() == [
        ["baseline", "released summary", 1],
        ["baseline", "signals", 1],
        ["uniform", "signals", 1],
    ]
    assert found["f1"].tolist() == [2 / 3, 0.5, 2 / 3]
    with pytest.raises(BadInput, match="signals of study 'mini' were given to study 'full'"):
        corrections.table([(held, METADATA)], [], "full")


def test_table_8_prefers_summaries_marks_signals_and_leaves_the_rest_empty(tmp_path):
    held = frame([(1.0, 0.0, 0.5, 0.0, 0.0), (0.25, 0.0, 0.5, 0.0, 0.0), (0.0, 1.0, 0.5, 0.0, 0.0)])
    rows = corrections.table([(held[["label", "yes_max", "no_max"]], METADATA)], [released()], "mini")
    table = table8.build(rows, "llava15", "adversarial", "paper", "A note.")
    printed = table.printed()
    assert printed[0] == ["Eight-token baseline", "0.6667", "1.0000", "0.5000"]
    assert printed[8] == ["Uniform suppression*", "0.6667", "1.0000", "0.5000"]
    assert printed[1] == ["CLIP-B/32 certainty (β = 1.0)", "", "", ""]
    assert len(printed) == 10
    assert table.frame.loc[1, "basis"] == "not in this study"
    assert table.frame["variant"].tolist() == ["as run", *["paper"] * 2, "as run", *["paper"] * 4, "as run", "paper"]
    assert any("Generation midpoint gating" in note for note in table.notes)
    table.save(tmp_path / "t.csv", tmp_path / "t.md", tmp_path / "t.tex")


def test_table_8_of_a_study_with_all_signals_has_no_gaps_and_no_marks():
    held = frame([(1.0, 0.0, 0.5, 0.0, 0.0)] * 4)
    rows = corrections.table([(held, METADATA)], [], "mini")
    for variant in corrections.VARIANTS:
        table = table8.build(rows, "llava15", "adversarial", variant)
        assert all(all(line) for line in table.printed())
        assert not any("*" in line[0] for line in table.printed())
    with pytest.raises(BadInput, match="variant 'printed'"):
        table8.build(rows, "llava15", "adversarial", "printed")
