"""Numbers of the running text, from small hand-counted files."""

import pandas as pd
import pytest

from workflow.lib import inline_numbers
from workflow.lib.errors import BadInput
from workflow.lib.inline_numbers import Settings
from workflow.lib.tokens import NO_FORMS, YES_FORMS

CELLS = ("tp", "fp", "fn", "tn")


def confusion(*rows: tuple) -> pd.DataFrame:
    """Rows of (model, split, readout, tp, fp, fn, tn)."""
    frame = pd.DataFrame(rows, columns=["model", "split", "readout", *CELLS])
    tp, fp, fn, tn = (frame[name] for name in CELLS)
    return frame.assign(n=tp + fp + fn + tn, unknown_yes=0, unknown_no=0, f1=2 * tp / (2 * tp + fp + fn))


def encoded(first: int = 99) -> pd.DataFrame:
    """Forms of which those with a space take two ids."""
    forms = YES_FORMS + NO_FORMS
    ids = [(first, place) if form.startswith(" ") else (place,) for place, form in enumerate(forms)]
    return pd.DataFrame({"form": forms, "ids": ids, "single": [len(held) == 1 for held in ids]})


def table8(**f1: tuple[float, float, float, float]) -> pd.DataFrame:
    """Rows of (beta, f1, precision, recall) by method; one without numbers has empty cells."""
    columns = ["beta", "f1", "precision", "recall"]
    rows = [{"method": name.partition("__")[0]} | dict(zip(columns, row, strict=True)) for name, row in f1.items()]
    return pd.DataFrame(rows)


FILES = {
    "confusion": confusion(
        ("a", "adversarial", "legacy_8tok", 3, 2, 1, 2),
        ("a", "adversarial", "legacy_2tok", 4, 3, 0, 1),
        ("a", "adversarial", "dynamic_single", 3, 2, 1, 2),
        ("a", "random", "legacy_8tok", 3, 1, 1, 3),
        ("a", "random", "dynamic_single", 4, 0, 0, 4),
        ("qwen2_vl", "adversarial", "legacy_8tok", 1, 0, 3, 4),
        ("qwen2_vl", "random", "legacy_8tok", 0, 0, 4, 4),
    ),
    "first_tokens": pd.DataFrame(
        {
            "model": ["a"] * 4 + ["qwen2_vl"],
            "token_id": [3869, 1939, 3582, 7, 9454],
            "count": [5, 10, 0, 1, 16],
        }
    ),
    "transitions": pd.DataFrame(
        [
            ("a", "adversarial", "yes", 3, 0, 1, 0, 0, 1.0),
            ("a", "adversarial", "no", 2, 0, 1, 1, 0, 0.5),
            ("a", "random", "yes", 2, 1, 0, 1, 0, 0.0),
            ("a", "random", "no", 1, 0, 0, 2, 1, 0.0),
        ],
        columns=["model", "split", "label", "yes_yes", "yes_no", "no_yes", "no_no", "unknown", "value"],
    ),
    "signal_tests": pd.DataFrame(
        [("attention", "correct", "wrong", -0.5, -2.0, 0.01), ("logit_gap", "TP", "FN", "", "", "")],
        columns=["signal", "group_a", "group_b", "difference", "d", "p"],
    ),
    "instrumented": pd.DataFrame({"model": ["a"], "split": ["adversarial"], "differing_ids": ["2 3"]}),
    "table8": table8(
        baseline=(0.0, 0.8, 0.85, 0.75),
        clip_b_certainty=(1.0, 0.79, 0.90, 0.70),
        clip_b_certainty__2=(1.5, 0.78, 0.93, 0.66),
    ),
    "encoded": encoded(),
    "answers": pd.DataFrame(
        [
            (readout, identity, "adversarial", "yes", answer)
            for readout, given in (("legacy_2tok", "yyyy"), ("legacy_8tok", "nyyy"))
            for identity, answer in enumerate(("yes" if letter == "y" else "no" for letter in given), 1)
        ],
        columns=["readout", "id", "split", "label", "answer"],
    ),
    "signals": (
        pd.DataFrame({"id": [1, 2, 3], "yes_max": [3.0, 24.6875, 24.8125], "no_max": [1.0, 24.6875, 24.796875]}),
        {"model": "a", "split": "adversarial", "layers": [14, 20], "basis": "released records"},
    ),
    "settings": Settings({"a": "A (LLaMA-2)", "qwen2_vl": "Q (Qwen)"}),
}


def values(**changed) -> dict[str, float]:
    found = inline_numbers.table("mini", "a", **FILES | changed)
    assert found.columns.tolist() == list(inline_numbers.COLUMNS)
    assert set(found["study"]) == {"mini"} and found["name"].is_unique
    return dict(zip(found["name"], found["value"], strict=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("splits", 2),
        ("questions.split", 8),
        ("questions.audited", 16),
        ("percent.label_yes", 50),
        ("minutes.reported_speed", 0.508 * 16 / 60),
        # ids 3869, 1939 and 7 are emitted; the last is no candidate
        ("ids.emitted", 3),
        ("ids.never_emitted", 6),
        ("emissions.other_ids", 1),
        ("emissions.two_token_ids", 0),
        ("id.emitted_yes", 3869),
        ("id.spaced_Yes", 3869),
        ("ids.word", 2),
        ("yes_to_no", 1),
        ("phi.mean", 0.5),
        ("flips.adversarial", 2),
        ("no_answers.adversarial", 3),
        ("agreement.adversarial", 6),
        ("agreement_rate.random", 6 / 8),
        ("f1_numerator.legacy_2tok.adversarial", 8),
        ("f1_denominator.legacy_2tok.adversarial", 11),
        ("f1_points.legacy_8tok.random", 75),
        ("false_positive_rate.adversarial", 0.5),
        ("false_positive_ratio", 2),
        ("models.further", 1),
        ("tokenizer_families", 2),
        ("dynamic_single.least", 6 / 9),
        ("dynamic_single.largest", 1),
        ("legacy_8tok.other_vocabulary", 0.4),
        ("corrections.listed", 9),
        ("corrections.with_row", 8),
        ("corrections.gates", 6),
        ("corrections.contrasts", 1),
        ("precision_gain.largest", 8),
        ("precision_gain.least", 5),
        ("recall_cost.largest", 9),
        ("f1_loss.least", 0.01),
        ("beta.clip_b_certainty.largest", 1.5),
        ("signals.compared", 1),
        ("tests", 1),
        ("pooled_sd.attention", 0.25),
        ("layers.first", 14),
        ("layers.last", 19),
        ("image_positions", 576),
        ("clip_l_patches", 576),
        ("differing_id.1", 2),
        ("differing_id.1.margin", 0),
        ("differing_id.2.margin", 0.015625),
        ("differing_id.2.steps", 1),
        ("forms.multi_token", 4),
        ("forms.multi_token.tokens", 2),
        ("forms.multi_token.first_id", 99),
        # running rates 0, 1/2, 2/3, 3/4 settle at the last question only, and a constant one at the first
        ("running.eight_token.settled", 4),
        ("running.two_token.settled", 1),
        ("generated_tokens", 6),
    ],
)
def test_hand_counted(name, value):
    assert values()[name] == pytest.approx(value)


def test_what_a_study_has_no_data_for_is_left_out():
    known = {"seed", "weight_bits", "running.two_token.at_600", "dynamic_single.instructblip.least"}
    assert not known & set(values())
    found = values(settings=Settings(FILES["settings"].family, seed=42, quantisation="nf4"))
    assert (found["seed"], found["weight_bits"]) == (42, 4)
    assert "weight_bits" not in values(settings=Settings(FILES["settings"].family, 42, "none"))
    frame, metadata = FILES["signals"]
    found = values(signals=(frame, metadata | {"layers": None, "basis": "model"}))
    assert not {"layers.first", "image_positions"} & set(found)


def test_an_incomplete_table_8_has_no_least_gain():
    rows = pd.concat([FILES["table8"], table8(vcd=("", "", "", ""))], ignore_index=True)
    found = values(table8=rows)
    assert found["precision_gain.largest"] == pytest.approx(8)
    assert not {"precision_gain.least", "recall_cost.least"} & set(found)
    assert "precision_gain.largest" not in values(table8=table8(vcd=("", "", "", "")))


def test_splits_of_unlike_size_have_no_common_size():
    rows = FILES["confusion"].copy()
    rows.loc[rows["split"] == "random", "n"] = 10
    assert "questions.split" not in values(confusion=rows)


def test_several_emitted_ids_of_one_side_give_no_single_id():
    rows = pd.concat([FILES["first_tokens"], pd.DataFrame({"model": ["a"], "token_id": [4874], "count": [1]})])
    found = values(first_tokens=rows)
    assert "id.emitted_yes" not in found and found["id.emitted_no"] == 1939


def test_the_audited_model_must_be_there():
    with pytest.raises(BadInput, match="no row of model b"):
        inline_numbers.table("mini", "b", **FILES)
