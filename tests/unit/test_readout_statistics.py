"""Frames that compare readouts: intervals, paired tests, ties; rows matched by key, order as given."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from workflow.lib import files, metrics, readout_statistics, resampling
from workflow.lib.answers import StoredView
from workflow.lib.errors import BadInput
from workflow.lib.statistics import AnswerSet
from workflow.lib.tokens import LEGACY_8TOK, TokenSet

ANSWERS = {
    "legacy_8tok": ["yes", "no", "no", "no", "yes", "yes", "no", "no"],
    "legacy_2tok": ["yes", "yes", "yes", "no", "yes", "yes", "no", "yes"],
    "string_parse": ["yes", "no", "unknown", "no", "yes", "yes", "no", "no"],
}
PAIRS = [["legacy_8tok", "legacy_2tok"], ["legacy_8tok", "dynamic_single"]]


def answer_set(model="llava15", answers=ANSWERS, split="adversarial"):
    questions = pd.DataFrame(
        {
            "dataset": "pope",
            "split": split,
            "id": np.arange(1, 9),
            "label": ["yes", "no"] * 4,
            "emitted_id": np.int32(3869),
            "emitted_text": " Yes",
        }
    )
    rows = pd.concat(
        [questions.assign(readout=name, answer=given) for name, given in answers.items()], ignore_index=True
    )
    return AnswerSet(f"{model}.parquet", "mini", model, split, "logits", (), {}, rows)


def items(split="adversarial"):
    """Two images of four questions each, in another order than the answers."""
    held = {"dataset": "pope", "split": split, "id": np.arange(8, 0, -1), "image": ["b"] * 4 + ["a"] * 4}
    return pd.DataFrame(held)


def bounded(sets, counts=(), units=("question", "image"), images=None):
    return readout_statistics.intervals(
        sets, counts, items() if images is None else images, "mini", list(ANSWERS), PAIRS, units, 0.9, 200, 42
    )


def test_rows_stand_by_unit_then_readout_and_pairs_need_both(tmp_path):
    table = bounded([answer_set()])
    assert tuple(table) == readout_statistics.INTERVAL_COLUMNS
    assert table[["unit", "metric", "readout"]].to_numpy().tolist() == [
        [unit, metric, readout]
        for unit in ("question", "image")
        for metric, readout in (
            ("f1", "legacy_8tok"),
            ("f1", "legacy_2tok"),
            ("f1", "string_parse"),
            ("f1_gap", "legacy_8tok - legacy_2tok"),
        )
    ]
    # TP 2, FP 1, FN 2 against TP 3, FP 3, FN 1; unknown counts as wrong
    assert table["estimate"][:4].tolist() == [4 / 7, 6 / 10, 4 / 7, 4 / 7 - 6 / 10]
    files.write_csv(table, tmp_path / "i.csv")


def test_images_are_matched_by_key():
    table = bounded([answer_set()], units=["image"])
    by_image = resampling.outcomes(
        ["yes", "no"] * 4, ANSWERS["legacy_8tok"], unit="image", images=["a"] * 4 + ["b"] * 4
    )
    wanted = resampling.f1_interval(by_image, 0.9, 200, np.random.default_rng(42))
    row = table.iloc[0]
    assert (row["low"], row["high"], row["resamples"], row["seed"], row["level"]) == (
        wanted.low,
        wanted.high,
        200,
        42,
        0.9,
    )


def test_a_row_does_not_depend_on_other_models():
    alone = bounded([answer_set()])
    both = bounded([answer_set("qwen2_vl", {"legacy_8tok": ANSWERS["legacy_2tok"]}), answer_set()])
    pd.testing.assert_frame_equal(alone, both[both["model"] == "llava15"].reset_index(drop=True))


def test_published_counts_have_question_intervals_only():
    cells = {"tp": 5, "fp": 1, "fn": 2, "tn": 6, "unknown_yes": 0, "unknown_no": 0, "basis": "published metrics"}
    counts = pd.DataFrame(
        [
            {"model": "instructblip", "split": "random", "readout": readout} | cells
            for readout in ("legacy_8tok", "opera")
        ]
    )
    table = bounded([], [counts])
    assert table[["readout", "metric", "unit", "basis"]].to_numpy().tolist() == [
        ["legacy_8tok", "f1", "question", "published metrics"]
    ]
    assert table.loc[0, "estimate"] == 10 / 13
    assert bounded([], [counts], units=["image"]).empty


def test_an_answer_without_an_item_is_refused():
    with pytest.raises(BadInput, match=r"llava15.parquet: question 1 of split adversarial is not among the items"):
        bounded([answer_set()], images=items()[:-1])


def test_all_yes_answers_are_labelled(tmp_path):
    table = bounded([answer_set(answers={"legacy_8tok": ["yes"] * 8})])
    assert set(table["degenerate"]) == {"all yes"}
    assert table["estimate"].tolist() == [2 / 3] * 2
    # every image has as many positives, so resampling images moves nothing
    assert table.loc[table["unit"] == "image", ["low", "high"]].to_numpy().tolist() == [[2 / 3, 2 / 3]]


def test_paired_tests_by_hand(tmp_path):
    table = readout_statistics.paired_tests([answer_set()], PAIRS, "exact")
    assert tuple(table) == readout_statistics.MCNEMAR_COLUMNS
    # the second readout wins question 3 and loses 2 and 8
    assert len(table) == 1
    row = table.iloc[0]
    assert row[["both_right", "only_a", "only_b", "both_wrong"]].tolist() == [3, 2, 1, 2]
    assert (row["p"], row["method"], row["degenerate"]) == (1.0, "exact", "")
    files.write_csv(table, tmp_path / "m.csv")


def test_the_pairs_of_a_readout_with_itself_have_no_discordant_answers():
    row = readout_statistics.paired_tests([answer_set()], [["legacy_8tok", "legacy_8tok"]], "mid-p").iloc[0]
    assert (row["only_a"], row["only_b"], row["p"], row["degenerate"]) == (0, 0, 1.0, "no discordant pairs")


def test_ties_of_stored_logits(tmp_path):
    order = {token: column for column, token in enumerate(LEGACY_8TOK.ids)}
    logits = np.full((3, 8), -5, np.float32)
    logits[0, [order[3869], order[1939]]] = 20.0
    logits[1, order[3869]], logits[1, order[1939]] = 20.0, 20.0 + 2**-7
    logits[2, order[3869]], logits[2, order[1939]] = 21.0, 20.0
    view = StoredView(LEGACY_8TOK.ids, logits, (), (), (), TokenSet((4874, 3869), (694, 1939)), "logits")
    origin = {"study": "mini", "model": "llava15", "split": "adversarial", "basis": "logits"}
    names = ["legacy_8tok", "dynamic_single", "string_parse", "dynamic_logsumexp"]
    margins, bins = readout_statistics.ties([(origin, view)], [], names, "as_stored", 0.5)
    assert tuple(margins) == readout_statistics.MARGIN_COLUMNS
    assert margins["readout"].tolist() == ["legacy_8tok", "dynamic_single"]
    assert margins[["n", "ties", "near_ties_float16", "near_ties_bfloat16"]].to_numpy().tolist() == [[3, 1, 2, 2]] * 2
    assert tuple(bins) == readout_statistics.HISTOGRAM_COLUMNS
    assert bins.loc[bins["readout"] == "legacy_8tok", ["low", "high", "count"]].to_numpy().tolist() == [
        [-0.5, 0.0, 2],
        [0.0, 0.5, 0],
        [0.5, 1.0, 1],
    ]
    files.write_csv(margins, tmp_path / "m.csv")
    files.write_csv(bins, tmp_path / "h.csv")


def test_rounding_first_makes_the_near_tie_a_tie():
    logits = np.full((1, 8), -5, np.float32)
    logits[0, LEGACY_8TOK.ids.index(3869)], logits[0, LEGACY_8TOK.ids.index(1939)] = 20.0, 20.0 + 2**-7
    view = StoredView(LEGACY_8TOK.ids, logits, (), (), (), None, "logits")
    origin = {"study": "mini", "model": "llava15", "split": "adversarial", "basis": "logits"}
    ties = [
        readout_statistics.ties([(origin, view)], [], ["legacy_8tok"], precision, 0.5)[0].loc[0, "ties"]
        for precision in ("as_stored", "float16")
    ]
    assert ties == [0, 1]


def test_signals_stand_in_where_a_study_has_no_logits():
    signals = pd.DataFrame({"yes_max": np.float32([20.0, 21.0]), "no_max": np.float32([20.0, 20.0])})
    metadata = {"study": "released", "model": "llava15", "split": "adversarial", "basis": "released records"}
    margins, _ = readout_statistics.ties([], [(signals, metadata)], ["string_parse"], "as_stored", 0.5)
    assert margins[["readout", "basis", "n", "ties"]].to_numpy().tolist() == [["legacy_8tok", "signals", 2, 1]]


def test_no_input_gives_empty_tables():
    margins, bins = readout_statistics.ties([], [], ["legacy_8tok"], "as_stored", 0.5)
    assert margins.empty and bins.empty
    assert tuple(bins) == readout_statistics.HISTOGRAM_COLUMNS
    assert bounded([]).empty


def test_stored_logits_are_seen_as_they_are():
    held = {"dynamic_single": {"yes": [5], "no": [7]}}
    identity = {"study": "mini", "model": "m", "split": "s", "token_sets": held}
    stored = SimpleNamespace(candidate_ids=(5, 7), candidate_logits=np.zeros((2, 2), np.float32), identity=identity)
    view = readout_statistics.stored_view(stored, "x.parquet")
    assert (view.ids, view.dynamic, view.source) == ((5, 7), TokenSet((5,), (7,)), "x.parquet")
    assert readout_statistics.origin_of(stored) == {"study": "mini", "model": "m", "split": "s", "basis": "logits"}


def test_f1_of_the_intervals_is_f1_of_the_metrics():
    table = bounded([answer_set()], units=["question"])
    for name, given in ANSWERS.items():
        estimate = table.loc[table["readout"] == name, "estimate"].item()
        assert estimate == metrics.confusion(["yes", "no"] * 4, given).f1
