"""The signals table, its groups, and the comparisons made of it."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import files, resampling, signal_statistics, signals
from workflow.lib.errors import BadInput
from workflow.lib.statistics import AnswerSet
from workflow.lib.tables import table9

METADATA = {"study": "mini", "model": "llava15", "split": "adversarial", "basis": "model"}
ANSWERS = ["yes", "yes", "no", "no", "yes", "no", "no", "yes"]


def frame(answers=ANSWERS, **columns):
    """Questions with alternating labels; with the default answers two of each outcome but one FN."""
    n = len(answers)
    held = {
        "dataset": "pope",
        "split": "adversarial",
        "id": np.arange(1, n + 1),
        "label": ["yes" if number % 2 else "no" for number in range(1, n + 1)],
        "answer": answers,
        "yes_max": np.arange(n, dtype=np.float32),
        "no_max": np.full(n, 2.0, np.float32),
    }
    return pd.DataFrame(held | columns)


def answer_set(held, answers):
    rows = held[["dataset", "split", "id", "label"]].assign(
        emitted_id=np.int32(3869), emitted_text=" Yes", readout="legacy_8tok", answer=answers
    )
    return AnswerSet("answers.parquet", "mini", "llava15", "adversarial", "logits", (), {}, rows)


def test_groups_by_hand():
    groups = {name: np.flatnonzero(mask).tolist() for name, mask in signals.outcome_groups(frame()).items()}
    assert groups == {
        "TP": [0, 4],
        "FP": [1, 7],
        "TN": [3, 5],
        "FN": [2, 6],
        "correct": [0, 3, 4, 5],
        "wrong": [1, 2, 6, 7],
    }
    assert tuple(groups) == signals.GROUPS


@given(st.lists(st.sampled_from(["yes", "no"]), max_size=30))
def test_groups_share_out_every_question(answers):
    masks = signals.outcome_groups(frame(answers))
    cells = np.stack([masks[name] for name in ("TP", "FP", "TN", "FN")])
    assert (cells.sum(axis=0) == 1).all()
    assert (masks["correct"] == (masks["TP"] | masks["TN"])).all()
    assert (masks["wrong"] == ~masks["correct"]).all()


def test_group_pairs_stand_in_the_papers_order():
    assert signals.PAIRS == (("correct", "wrong"), ("TP", "FP"), ("TN", "FN"), ("TP", "FN"), ("TN", "FP"))


def test_signals_come_back_as_they_were_saved(tmp_path):
    held = frame(attention=np.linspace(0, 1, 8, dtype=np.float32), clip_l_certainty=np.float32(0.5))
    signals.save(held, tmp_path / "s.parquet", METADATA)
    found, metadata = signals.load(tmp_path / "s.parquet")
    pd.testing.assert_frame_equal(found, held[found.columns], check_dtype=False)
    assert metadata == METADATA
    assert list(found)[-2:] == ["attention", "clip_l_certainty"]
    assert found["attention"].dtype == found["clip_l_certainty"].dtype == np.float32


def test_the_logit_gap_is_computed_and_absent_signals_are_none():
    held = frame()
    assert signals.values(held, "logit_gap").tolist() == [2.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert signals.values(held, "attention") is None
    with pytest.raises(BadInput, match="signal 'atention' is not known"):
        signals.values(held, "atention")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": [0.1] * 7 + [np.nan]}, "id 8: attention is nan where a finite number is expected"),
        ({"yes_max": [np.inf] + [0.0] * 7}, "id 1: yes_max is inf where a finite number"),
        ({"cls_certainty": [0.5] * 7 + [1.01]}, "id 8: cls_certainty is 1.01 where a certainty from 0 to 1"),
        ({"cls_certainty": [-0.1] * 8}, "id 1: cls_certainty is -0.1 where a certainty from 0 to 1"),
        ({"answer": ["unknown", *ANSWERS[1:]]}, "id 1: answer is 'unknown' where yes or no"),
        ({"split": "random"}, "holds another split than 'adversarial'"),
        ({"id": [1, 2, 3, 4, 5, 6, 7, 7]}, "id 7 occurs more than once"),
        ({"atention": 0.5}, "signal 'atention' is not known"),
    ],
)
def test_broken_signals_are_refused_and_nothing_is_written(tmp_path, change, message):
    with pytest.raises(BadInput, match=message):
        signals.save(frame(**change), tmp_path / "s.parquet", METADATA)
    assert not list(tmp_path.iterdir())


def test_missing_columns_and_metadata_are_refused(tmp_path):
    with pytest.raises(BadInput, match="has no column 'no_max'"):
        signals.save(frame().drop(columns="no_max"), tmp_path / "s.parquet", METADATA)
    with pytest.raises(BadInput, match="lacks basis in its metadata"):
        signals.save(frame(), tmp_path / "s.parquet", {key: METADATA[key] for key in ("study", "model", "split")})


def test_files_of_another_kind_are_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(BadInput, match="is not a readable Parquet file"):
        signals.load(tmp_path / "text.parquet")
    frame().to_parquet(tmp_path / "bare.parquet")
    with pytest.raises(BadInput, match="has no metadata"):
        signals.load(tmp_path / "bare.parquet")
    signals.save(frame(attention=0.5), tmp_path / "s.parquet", METADATA)
    table = pq.read_table(tmp_path / "s.parquet")
    position = table.column_names.index("attention")
    wide = table.set_column(position, "attention", table["attention"].cast("double"))
    pq.write_table(wide, tmp_path / "wide.parquet")
    with pytest.raises(BadInput, match="has no column 'attention' of type float"):
        signals.load(tmp_path / "wide.parquet")


def test_no_questions_are_signals_too(tmp_path):
    signals.save(frame([], attention=np.zeros(0, np.float32)), tmp_path / "s.parquet", METADATA)
    found, _ = signals.load(tmp_path / "s.parquet")
    assert len(found) == 0 and "attention" in found


def compared(held, *comparisons, resamples=200):
    wanted = [{"signal": signal, "groups": [a, b]} for signal, a, b in comparisons]
    return signal_statistics.signal_tests([(held, METADATA)], wanted, 0.95, resamples, 42)


def test_a_comparison_by_hand(tmp_path):
    held = frame(attention=np.array([1, 9, 4, 5, 3, 7, 8, 2], np.float32))
    table = compared(held, ("attention", "TP", "FP"), ("logit_gap", "correct", "wrong"))
    row = table.iloc[0]
    # TP has 1 and 3, FP has 9 and 2
    assert (row["n_a"], row["n_b"], row["mean_a"], row["mean_b"], row["difference"]) == (2, 2, 2, 5.5, -3.5)
    assert row["sd_a"] == pytest.approx(np.sqrt(2)) and row["sd_b"] == pytest.approx(np.sqrt(24.5))
    assert row["u"] == 1.0 and row["p"] == pytest.approx(2 / 3)
    assert row["d"] == pytest.approx(-3.5 / np.sqrt((2 + 24.5) / 2))
    assert (row["method"], row["continuity"], row["scipy"]) == ("exact", False, scipy.__version__)
    assert (row["tests"], row["p_bonferroni"], row["degenerate"]) == (2, 1.0, "")
    interval = resampling.difference_of_means([1.0, 3.0], [9.0, 2.0], 200, 0.95, np.random.default_rng(42))
    assert (row["ci_low"], row["ci_high"]) == (interval.low, interval.high)
    assert tuple(table) == signal_statistics.TEST_COLUMNS
    files.write_csv(table, tmp_path / "t.csv")


def test_a_comparison_does_not_depend_on_those_before_it():
    held = frame(attention=np.random.default_rng(0).random(8).astype(np.float32))
    alone = compared(held, ("attention", "TP", "FP"))
    after = compared(held, ("attention", "correct", "wrong"), ("attention", "TP", "FP"))
    columns = ["ci_low", "ci_high", "u", "p", "d"]
    assert alone.loc[0, columns].tolist() == after.loc[1, columns].tolist()


def test_a_signal_that_was_not_measured_is_labelled_and_no_test(tmp_path):
    table = compared(frame(), ("clip_l_similarity", "TP", "FP"), ("logit_gap", "TP", "FP"))
    row = table.iloc[0]
    assert (row["degenerate"], row["n_a"], row["n_b"], row["p"], row["mean_a"]) == ("not measured", 2, 2, "", "")
    assert table["tests"].tolist() == [1, 1]
    files.write_csv(table, tmp_path / "t.csv")
    assert files.read_csv(tmp_path / "t.csv").loc[0, "p"] == ""


@pytest.mark.parametrize(
    ("answers", "label"),
    [
        (["yes", "yes"] * 4, "TN is empty, FN is empty"),
        (["yes", "no"] * 4, "FN is empty"),
        (["no", *["yes", "yes"] * 3, "no"], "TN has one value, FN has one value, no spread"),
        ([], "TN is empty, FN is empty"),
    ],
)
def test_small_groups_are_labelled_and_never_missing(tmp_path, answers, label):
    row = compared(frame(answers), ("logit_gap", "TN", "FN")).iloc[0]
    assert row["degenerate"] == label
    assert row["d"] == ""
    files.write_csv(pd.DataFrame([row]), tmp_path / "t.csv")


def test_a_constant_signal_is_labelled():
    row = compared(frame(attention=np.float32(0.5)), ("attention", "correct", "wrong")).iloc[0]
    assert (row["degenerate"], row["u"], row["p"], row["d"]) == ("constant signal", 8.0, 1.0, "")
    assert (row["difference"], row["ci_low"], row["ci_high"]) == (0.0, 0.0, 0.0)


def test_unknown_groups_are_refused():
    with pytest.raises(BadInput, match="outcome group 'tp' is not known"):
        compared(frame(), ("logit_gap", "tp", "FP"))


def test_the_instrumented_pass_against_the_main_run():
    held = frame()
    main = ["no", *ANSWERS[1:6], "yes", ANSWERS[7]]
    backwards = np.arange(8)[::-1]
    shuffled = answer_set(held.iloc[backwards], np.array(main)[backwards])
    row = signal_statistics.instrumented_pass([(held, METADATA)], [shuffled]).iloc[0]
    assert (row["n"], row["agree"], row["differ"], row["differing_ids"]) == (8, 6, 2, "1 7")
    assert (row["ties"], row["tie_ids"], row["mean_yes_max"], row["mean_no_max"]) == (1, "3", 3.5, 2.0)
    assert row[["tp", "fp", "tn", "fn", "correct", "wrong"]].tolist() == [2, 2, 2, 2, 4, 4]


def test_a_pass_over_other_questions_is_refused():
    held = frame()
    with pytest.raises(BadInput, match="no answers of model llava15, split adversarial"):
        signal_statistics.instrumented_pass([(held, METADATA)], [])
    with pytest.raises(BadInput, match="hold other questions or labels"):
        signal_statistics.instrumented_pass([(held, METADATA)], [answer_set(held.iloc[:-1], ANSWERS[:-1])])


NEEDED = [
    ("attention", "correct", "wrong"),
    ("logit_gap", "TP", "FN"),
    ("logit_gap", "TN", "FP"),
]


def test_table_9_by_hand(tmp_path):
    held = frame(attention=np.array([1, 9, 4, 5, 3, 7, 8, 2], np.float32) / 10)
    files.write_csv(compared(held, *NEEDED), tmp_path / "t.csv")
    table = table9.build(files.read_csv(tmp_path / "t.csv"), "llava15", "adversarial", "A note.")
    assert table.printed() == [
        ["Attention", "correct", "4", "0.4000", "0.2582"],
        ["Attention", "wrong", "4", "0.5750", "0.3304"],
        ["Logit gap", "TP", "2", "2.000", "0.000"],
        ["Logit gap", "TN", "2", "2.000", "1.414"],
        ["Logit gap", "FP", "2", "3.000", "2.828"],
        ["Logit gap", "FN", "2", "2.000", "2.828"],
    ]
    table.save(tmp_path / "9.csv", tmp_path / "9.md", tmp_path / "9.tex")


def test_table_9_labels_what_is_missing(tmp_path):
    held = frame(["yes", "yes", "yes", "no", "yes", "yes", "yes", "yes"])
    files.write_csv(compared(held, *NEEDED), tmp_path / "t.csv")
    table = table9.build(files.read_csv(tmp_path / "t.csv"), "llava15", "adversarial")
    assert table.frame["degenerate"].tolist() == ["not measured", "not measured", "", "one value", "", "empty"]
    assert table.printed()[0] == ["Attention", "correct", "5", "", ""]
    assert table.printed()[3] == ["Logit gap", "TN", "1", "1.000", ""]
    assert table.printed()[5] == ["Logit gap", "FN", "0", "", ""]
    with pytest.raises(BadInput, match="compares no group TN of signal logit_gap"):
        table9.build(compared(held, *NEEDED[:2]), "llava15", "adversarial")
