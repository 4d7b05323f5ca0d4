"""Result frames: row order, columns, matching across splits, and the paper's digits from the real records."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from workflow.lib import answers, files, items, statistics
from workflow.lib.errors import BadInput
from workflow.lib.statistics import AnswerSet, Study

SPLITS = ("adversarial", "popular", "random")
STUDY = Study("mini", ("b", "a"), ("one", "two"), ("legacy_2tok", "legacy_8tok", "string_parse"))


def answer_set(model="a", split="one", labels="ynyn", two="yyyn", eight="ynnn", emitted=None, **others):
    """A small set in one letter an answer: y, n or u."""
    words = {"y": "yes", "n": "no", "u": "unknown"}
    emitted = emitted or [3869 if answer == "y" else 1939 for answer in eight]
    frames = []
    for readout, letters in (("legacy_2tok", two), ("legacy_8tok", eight), ("string_parse", eight)):
        frames.append(
            pd.DataFrame(
                {
                    "dataset": "polls",
                    "split": split,
                    "id": np.arange(1, len(labels) + 1),
                    "label": [words[letter] for letter in labels],
                    "emitted_id": np.array(emitted, np.int32),
                    "emitted_text": [{3869: " Yes", 1939: " No"}.get(token, "?") for token in emitted],
                    "readout": readout,
                    "answer": [words[letter] for letter in letters],
                }
            )
        )
    given = {
        "study": "mini",
        "basis": "logits",
        "candidate_ids": (1217, 3582, 3869),
        "candidate_texts": {3582: "yes"},
    }
    return AnswerSet(f"{model}/{split}.parquet", model=model, split=split, frame=pd.concat(frames), **given | others)


def test_confusion_table_follows_the_study_not_the_input():
    counts = pd.DataFrame(
        [["b", "one", "legacy_2tok", 1, 0, 0, 0, 0, 2, "published metrics"]],
        columns=["model", "split", "readout", *statistics.COUNTS, "basis"],
    )
    table = statistics.confusion_table([answer_set(split="two"), answer_set()], [counts], STUDY)
    assert tuple(table.columns) == statistics.CONFUSION_COLUMNS
    assert table[["model", "split", "readout"]].agg(" ".join, axis=1).tolist() == [
        "b one legacy_2tok",
        *(f"a {split} {readout}" for split in ("one", "two") for readout in STUDY.readouts),
    ]
    first = table.iloc[0]
    assert (first["basis"], first["n"], first["accuracy"], first["accuracy_answered"]) == (
        "published metrics",
        3,
        1 / 3,
        1,
    )
    assert first["degenerate"] == "all yes, no answered negatives"
    assert table.iloc[1][list(statistics.COUNTS)].tolist() == [2, 1, 0, 1, 0, 0]
    assert table.iloc[1]["f1"] == 0.8


def test_confusion_table_leaves_out_readouts_that_are_not_in_force():
    study = Study("mini", ("a",), ("one",), ("legacy_8tok",))
    assert statistics.confusion_table([answer_set()], [], study)["readout"].tolist() == ["legacy_8tok"]
    assert tuple(statistics.confusion_table([], [], study).columns) == statistics.CONFUSION_COLUMNS


def test_counts_and_answers_for_one_cell_are_refused():
    counts = pd.DataFrame(
        [["a", "one", "legacy_2tok", 1, 0, 0, 0, 0, 0, "published metrics"]],
        columns=["model", "split", "readout", *statistics.COUNTS, "basis"],
    )
    with pytest.raises(BadInput, match="model a, split one, readout legacy_2tok has both answers and published counts"):
        statistics.confusion_table([answer_set()], [counts], STUDY)
    with pytest.raises(BadInput, match="a table of counts has no column 'basis'"):
        statistics.confusion_table([], [counts.drop(columns="basis")], STUDY)
    with pytest.raises(BadInput, match="counts of model 'x' do not belong to study 'mini'"):
        statistics.confusion_table([], [counts.assign(model="x")], STUDY)


@pytest.mark.parametrize(("sets", "message"), [
    ([answer_set(study="released")], "a/one.parquet belongs to study 'released', not to 'mini'"),
    ([answer_set(), answer_set()], "both answer for model a, split one"),
    ([answer_set(model="c")], r"answers of model 'c' do not belong to study 'mini' \(its models: b, a\)"),
])  # fmt: skip
def test_answers_of_another_study_are_refused(sets, message):
    for build in (statistics.first_token_table, statistics.transition_table, statistics.protocol_gap_table):
        with pytest.raises(BadInput, match=message):
            build(sets, STUDY)


def broken(change):
    frame = answer_set().frame.reset_index(drop=True)
    return change(frame)


@pytest.mark.parametrize(("change", "message"), [
    (lambda f: f.drop(columns="answer"), "a/one.parquet has no column 'answer'"),
    (lambda f: f.assign(answer=[None, *f["answer"][1:]]), r"a/one.parquet row 0: answer is missing \(null\)"),
    (lambda f: pd.concat([f, f[:1]]), "question 1 has more than one answer of readout legacy_2tok"),
    (lambda f: f[1:], "its readouts do not answer the same questions"),
    (lambda f: f.assign(label=["no", *f["label"][1:]]), "answer the same questions with the same labels"),
    (lambda f: f.assign(split=["two", *f["split"][1:]]), "holds split 'two' beside 'one'"),
])  # fmt: skip
def test_broken_answers_are_refused(change, message):
    with pytest.raises(BadInput, match=message):
        AnswerSet("a/one.parquet", "mini", "a", "one", "logits", (), {}, broken(change))


def test_first_tokens_list_candidates_and_strangers():
    table = statistics.first_token_table([answer_set(emitted=[3869, 1939, 3869, 7])], STUDY)
    assert tuple(table.columns) == statistics.FIRST_TOKEN_COLUMNS
    assert table[["token_id", "text", "count", "n"]].values.tolist() == [
        [7, "?", 1, 4],
        [1217, "", 0, 4],
        [1939, " No", 1, 4],
        [3582, "yes", 0, 4],
        [3869, " Yes", 2, 4],
    ]
    assert table["count"].sum() == 4


def test_transitions_pair_by_key_not_by_position():
    held = answer_set()
    backwards = AnswerSet(**{**vars(held), "frame": held.frame.sort_values(["readout", "id"], ascending=[True, False])})
    table = statistics.transition_table([backwards], STUDY)
    assert tuple(table.columns) == statistics.TRANSITION_COLUMNS
    assert table.equals(statistics.transition_table([held], STUDY))
    # labels ynyn, eight-token ynnn, two-token yyyn
    assert table[["label", "yes_yes", "yes_no", "no_yes", "no_no", "rate", "value"]].values.tolist() == [
        ["yes", 1, 0, 1, 0, "phi", 1.0],
        ["no", 0, 0, 1, 1, "rho_N", 0.5],
    ]


def test_protocol_gap_table_by_hand():
    sets = [answer_set(), answer_set(split="two", two="ynyu", eight="nnyn")]
    table = statistics.protocol_gap_table(sets, STUDY)
    assert tuple(table.columns) == statistics.PROTOCOL_GAP_COLUMNS
    first, second = table.to_dict("records")
    assert (first["p"], first["n"], first["t"], first["g"], first["g_tot"]) == (2, 2, 1, 2, 3)
    assert (first["f1_reference"], first["f1_tested"], first["f1_tested_closed_form"]) == (2 / 3, 0.8, 0.8)
    assert (first["f1_lower_bound"], first["pooled_flip_rate"], first["condition_holds"]) == (
        0.5,
        2 / 3,
        True,
    )
    assert (first["rates_from"], first["f1_transplanted"], first["degenerate"]) == ("one", 0.8, "")
    assert (second["condition_holds"], second["n"], second["rates_from"]) == (False, 1, "one")
    # all reference answers yes: there is nothing to flip
    (third,) = statistics.protocol_gap_table([answer_set(two="yyyy", eight="yyyy")], STUDY).to_dict("records")
    assert (third["rho_n"], third["phi"]) == (0.0, 0.0)
    assert third["degenerate"] == "rho_N: no reference no, phi: no reference no"


def test_a_readout_that_is_missing_is_named():
    held = answer_set()
    frame = held.frame[held.frame["readout"] != "legacy_2tok"]
    with pytest.raises(BadInput, match=r"no answers of readout legacy_2tok \(it has legacy_8tok, string_parse\)"):
        statistics.transition_table([AnswerSet(**{**vars(held), "frame": frame})], STUDY)


def polls(split, *rows):
    """Items of one split from (image, question, label letter)."""
    return pd.DataFrame(
        {
            "dataset": "polls",
            "split": split,
            "id": np.arange(1, len(rows) + 1),
            "image": [image for image, _, _ in rows],
            "question": [question for _, question, _ in rows],
            "label": [{"y": "yes", "n": "no"}[label] for _, _, label in rows],
        }
    )


CAT, OWL, OWL_TYPO, DOG = (
    "Is it a cat?",
    "Is an owl in the image?",
    "Is an owl in the imange?",
    "Is it a dog?",
)


def test_split_consistency_by_hand():
    one = polls("one", ("i", CAT, "y"), ("i", OWL_TYPO, "n"), ("i", DOG, "y"), ("j", CAT, "n"))
    two = polls("two", ("j", CAT, "n"), ("i", CAT, "y"), ("k", CAT, "y"), ("i", OWL, "n"))
    sets = [
        answer_set(split="one", labels="ynyn", two="yyyn", eight="ynyn"),
        answer_set(split="two", labels="nyyn", two="yyyn", eight="nyyy"),
    ]
    pairs = statistics.shared_questions(sets, pd.concat([one, two]), STUDY)
    table = statistics.split_consistency_table(pairs, STUDY)
    assert tuple(table.columns) == statistics.CONSISTENCY_COLUMNS
    assert table.drop(columns=["study", "model", "split_a", "split_b"]).values.tolist() == [
        ["yes", False, 1, 0, 0, 0],  # the cat in i
        ["yes", True, 0, 0, 0, 0],
        ["no", False, 1, 0, 1, 1],  # the cat in j: same token, other two-token answer
        ["no", True, 1, 1, 0, 1],  # the owl in i: another token
    ]
    listed = statistics.split_differences(pairs, STUDY)
    assert tuple(listed.columns) == statistics.DIFFERENCE_COLUMNS
    assert listed[["image", "question_a", "question_b", "id_a", "id_b"]].values.tolist() == [
        ["i", OWL_TYPO, OWL, 2, 4],
        ["j", CAT, CAT, 4, 1],
    ]
    assert table["typo"].dtype == bool and set(listed["model"]) == {"a"}


def test_splits_that_share_nothing_still_have_their_rows():
    sets = [
        answer_set(split="one", labels="y", two="y", eight="y"),
        answer_set(split="two", labels="y", two="y", eight="y"),
    ]
    questions = pd.concat([polls("one", ("i", CAT, "y")), polls("two", ("j", CAT, "y"))])
    pairs = statistics.shared_questions(sets, questions, STUDY)
    table = statistics.split_consistency_table(pairs, STUDY)
    assert table["shared"].tolist() == table["differ"].tolist() == [0, 0, 0, 0]
    assert statistics.split_differences(pairs, STUDY).empty
    assert statistics.split_consistency_table([], STUDY).empty and statistics.split_differences([], STUDY).empty


def test_a_question_asked_twice_is_paired_once_each():
    questions = pd.concat([polls("one", *[("i", CAT, "y")] * 2), polls("two", *[("i", CAT, "y")] * 3)])
    sets = [
        answer_set(split="one", labels="yy", two="yn", eight="yy"),
        answer_set(split="two", labels="yyy", two="yyn", eight="yyy"),
    ]
    (pair,) = statistics.shared_questions(sets, questions, STUDY)
    assert pair.rows[["id_a", "id_b", "differ"]].values.tolist() == [[1, 1, False], [2, 2, True]]


@pytest.mark.parametrize(("one", "two", "message"), [
    ([("i", CAT, "y")] * 2, [("i", CAT, "y")], "question 2 of split one has no answer"),
    ([], [("i", CAT, "y")], "question 1 of split one is answered but not among the items"),
    ([("i", CAT, "n")], [("i", CAT, "y")], "question 1 of split one has label yes in the answers and no in"),
])  # fmt: skip
def test_answers_and_items_of_other_files_are_refused(one, two, message):
    sets = [answer_set(split=split, labels="y", two="y", eight="y") for split in STUDY.splits]
    with pytest.raises(BadInput, match=message):
        statistics.shared_questions(sets, pd.concat([polls("one", *one), polls("two", *two)]), STUDY)


def test_one_question_with_two_labels_is_refused():
    sets = [
        answer_set(split="one", labels="y", two="y", eight="y"),
        answer_set(split="two", labels="n", two="y", eight="y"),
    ]
    questions = pd.concat([polls("one", ("i", CAT, "y")), polls("two", ("i", CAT, "n"))])
    with pytest.raises(BadInput, match=r"i: 'Is it a cat\?' has label yes in split one \(id 1\) and no in split two"):
        statistics.shared_questions(sets, questions, STUDY)


def test_normalising_mends_the_one_misspelling_only():
    assert statistics.normalised_question(OWL_TYPO) == OWL
    assert statistics.normalised_question("Is there a kimange in the image?") == "Is there a kimange in the image?"


def test_answers_come_back_from_disk(tmp_path):
    held = answer_set()
    frame = held.frame.assign(tie=False, margin=pd.array([None] * len(held.frame), dtype="Float32"))
    path = tmp_path / "one.parquet"
    metadata = {
        "study": "mini",
        "model": "a",
        "basis": "logits",
        "candidate_ids": [7],
        "candidate_texts": {"7": "x"},
    }
    answers.save(answers.to_table(frame), path, metadata)
    back = statistics.load_answers(path)
    assert (back.study, back.model, back.split, back.basis) == ("mini", "a", "one", "logits")
    assert (back.candidate_ids, back.candidate_texts, back.source) == ((7,), {7: "x"}, str(path))
    assert statistics.transition_table([back], STUDY).equals(statistics.transition_table([held], STUDY))
    answers.save(answers.to_table(frame), path, {"study": "mini", "model": "a"})
    with pytest.raises(BadInput, match=r"one\.parquet lacks basis in its metadata"):
        statistics.load_answers(path)
    answers.save(answers.to_table(frame[:0]), path, metadata)
    with pytest.raises(BadInput, match=r"one\.parquet holds no answer"):
        statistics.load_answers(path)


def test_every_table_can_be_written_without_a_missing_value(tmp_path):
    sets = [
        answer_set(labels="y", two="u", eight="u", emitted=[5]),
        answer_set(split="two", labels="n", two="y", eight="n"),
    ]
    questions = pd.concat([polls("one", ("i", CAT, "y")), polls("two", ("j", CAT, "n"))])
    pairs = statistics.shared_questions(sets, questions, STUDY)
    for number, table in enumerate(
        [
            statistics.confusion_table(sets, [], STUDY),
            statistics.first_token_table(sets, STUDY),
            statistics.transition_table(sets, STUDY),
            statistics.protocol_gap_table(sets, STUDY),
            statistics.split_consistency_table(pairs, STUDY),
            statistics.split_differences(pairs, STUDY),
        ]
    ):
        files.write_csv(table, tmp_path / f"{number}.csv")
        assert list(files.read_csv(tmp_path / f"{number}.csv").columns) == list(table.columns)


# --- the released records ---

REVISION = "9b5410653a70098c433574841a1804b89f573575"
RELEASED = Study("released", ("llava15", "llava16_mistral"), SPLITS, ("legacy_2tok", "legacy_8tok"))


@pytest.fixture(scope="module")
def released(shared_data):
    """Minimal answers of the two models with per-question records, and the questions they were asked."""
    names = {
        "llava15": ("pope_{}_2tok_vs_8tok.json", "pred_2tok", "pred_8tok"),
        "llava16_mistral": (
            "llava16_mistral_pope_{}_3000q_paper_template_token_audit.json",
            "pred_legacy_2tok",
            "pred_legacy_8tok",
        ),
    }  # fmt: skip
    sets = []
    for model, split in itertools.product(names, SPLITS):
        name, two, eight = names[model]
        records = json.loads((shared_data / "released" / name.format(split)).read_text())["results"]
        shared = pd.DataFrame(
            {
                "dataset": "pope-coco",
                "split": split,
                "id": [int(record["question_id"]) for record in records],
                "label": [record["label"] for record in records],
                "emitted_id": [record["top_token_id"] for record in records],
                "emitted_text": [record.get("top_token_str", "") for record in records],
            }
        )
        frame = pd.concat(
            shared.assign(readout=readout, answer=[record[field] for record in records])
            for readout, field in (("legacy_2tok", two), ("legacy_8tok", eight))
        )
        sets.append(
            AnswerSet(f"{model} {split}", "released", model, split, "released records", (1217, 3582), {}, frame)
        )
    questions = pd.concat(
        items.read_polls(
            shared_data / "pope" / REVISION / f"coco_pope_{split}.json",
            "pope-coco",
            split,
            items.Expected(3000, 6),
        ).to_pandas()
        for split in SPLITS
    )
    return sets, questions


def test_released_split_consistency(released):
    table = statistics.split_consistency_table(statistics.shared_questions(*released, RELEASED), RELEASED)
    columns = ["shared", "differ_emitted", "differ_two_token_only", "differ"]
    total = table.groupby(["model", "split_a", "split_b", "label"])[columns].sum().apply(tuple, axis=1).to_dict()
    typos = table[table["typo"]].set_index(["model", "split_a", "split_b", "label"])["differ"].to_dict()
    first, second = "llava15", "llava16_mistral"
    assert total[first, "adversarial", "popular", "yes"] == (1500, 45, 17, 62)
    assert typos[first, "adversarial", "popular", "yes"] == 7
    assert total[first, "adversarial", "popular", "no"] == (788, 28, 57, 85)
    assert total[second, "adversarial", "popular", "yes"] == (1500, 30, 0, 30)
    assert typos[second, "adversarial", "popular", "yes"] == 4
    assert total[second, "adversarial", "popular", "no"] == (788, 14, 0, 14)
    for model in RELEASED.models:
        assert total[model, "popular", "random", "yes"] == (1500, 0, 0, 0)
        assert total[model, "popular", "random", "no"] == (63, 0, 0, 0)
    shared_typos = table[table["typo"] & (table["split_a"] == "adversarial") & (table["label"] == "yes")]["shared"]
    assert shared_typos.tolist() == [43] * 4


def test_released_tables_1_and_7(released):
    sets, _ = released
    tokens = statistics.first_token_table(sets, RELEASED)
    counts = tokens[tokens["model"] == "llava15"].pivot(index="split", columns="token_id", values="count")
    assert counts.loc[list(SPLITS), [3869, 1939, 3582, 1217]].values.tolist() == [
        [1356, 1644, 0, 0],
        [1303, 1697, 0, 0],
        [1234, 1766, 0, 0],
    ]
    rows = statistics.transition_table(sets, RELEASED)
    rows = rows[rows["model"] == "llava15"]
    assert rows[
        ["split", "label", "yes_yes", "yes_no", "no_yes", "no_no", "numerator", "denominator"]
    ].values.tolist() == [
        ["adversarial", "yes", 1174, 0, 264, 62, 264, 326],
        ["adversarial", "no", 182, 0, 660, 658, 660, 1318],
        ["popular", "yes", 1191, 0, 250, 59, 250, 309],
        ["popular", "no", 112, 0, 567, 821, 567, 1388],
        ["random", "yes", 1191, 0, 250, 59, 250, 309],
        ["random", "no", 43, 0, 448, 1009, 448, 1457],
    ]


def test_released_protocol_gap(released):
    table = statistics.protocol_gap_table(released[0], RELEASED)
    ours = table[table["model"] == "llava15"]
    assert ours["f1_reference"].round(4).tolist() == [0.8221, 0.8498, 0.8713]
    assert ours["f1_tested"].round(4).tolist() == [0.7608, 0.7961, 0.8397]
    assert ours["f1_transplanted"].round(4).tolist() == [0.7608, 0.7690, 0.7761]
    # Table 2 prints +0.0316 on random, the difference of the two printed F1; unrounded it is 0.03151
    assert ours["gap"].round(5).tolist() == [0.06128, 0.05367, 0.03151]
    assert ours["f1_lower_bound"].round(4).iloc[0] == 0.6678
    assert (ours["f1_tested"] == ours["f1_tested_closed_form"]).all() and ours["condition_holds"].all()
    # a vocabulary in which the eight ids mean other words: all no against all yes
    other = table[table["model"] == "llava16_mistral"]
    assert other["f1_reference"].tolist() == [0.0] * 3 and (other["phi"] == 1).all() and (other["rho_n"] == 1).all()
