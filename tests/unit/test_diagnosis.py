import json

import pandas as pd
import pytest

from workflow.lib import diagnosis
from workflow.lib.statistics import AnswerSet
from workflow.lib.tokens import LEGACY_2TOK, LEGACY_8TOK, TokenSet

TEXTS = {3869: "Yes", 1939: "No", 5592: "Yes", 1770: "No", 450: "The"}


def held(emitted, answers, readout="legacy_8tok", ties=None):
    count = len(emitted)
    frame = pd.DataFrame(
        {
            "dataset": "pope",
            "split": "random",
            "id": range(1, count + 1),
            "label": [("yes", "no")[row % 2] for row in range(count)],
            "emitted_id": emitted,
            "emitted_text": [TEXTS[token] for token in emitted],
            "readout": readout,
            "answer": answers,
            "tie": ties or [False] * count,
        }
    )
    return AnswerSet("f", "mini", "m", "random", "logits", (), {}, frame)


def test_covered_tokens_need_no_proposal():
    found = diagnosis.diagnose(held([3869, 1939, 3869], ["yes", "no", "yes"]), "as_run", 100, ["legacy_8tok"])
    assert found["token_id"].tolist() == [3869, 1939] and found["count"].tolist() == [2, 1]
    assert found["covered"].all() and (found["covered_share"] == 1).all() and (found["questions"] == 3).all()
    assert json.loads(found["proposed_yes"][0]) == list(LEGACY_8TOK.yes)


def test_uncovered_ids_are_added_to_the_side_that_their_text_says():
    emitted = [5592, 1770, 5592, 450]
    found = diagnosis.diagnose(held(emitted, ["no"] * 4), "native", 100, ["legacy_2tok"])
    assert not found["covered"].any() and (found["covered_share"] == 0).all()
    assert found.set_index("token_id")["side"].to_dict() == {5592: "yes", 1770: "no", 450: "unknown"}
    assert json.loads(found["proposed_yes"][0]) == [*LEGACY_2TOK.yes, 5592]
    assert json.loads(found["proposed_no"][0]) == [*LEGACY_2TOK.no, 1770]


def test_only_the_first_questions_are_looked_at():
    found = diagnosis.diagnose(held([3869, 3869, 5592], ["yes"] * 3), "as_run", 2, ["legacy_8tok"])
    assert found["token_id"].tolist() == [3869] and found["questions"].tolist() == [2]


def test_string_readouts_and_unknown_dynamic_sets_are_left_out():
    names = ["legacy_2tok", "dynamic_single", "string_parse"]
    assert list(diagnosis.token_sets(names, None)) == ["legacy_2tok"]
    assert diagnosis.token_sets(names, TokenSet((1,), (2,)))["dynamic_single"] == TokenSet((1,), (2,))


def test_the_theorem_excepts_ties_and_uncovered_tokens():
    rows = held([3869, 1939, 3869, 5592], ["yes", "no", "no", "no"], ties=[False, False, True, False])
    found = diagnosis.agreement_table([rows], ["legacy_8tok"]).iloc[0]
    assert (found["n"], found["agree"], found["covered"], found["tied"], found["agree_untied"]) == (4, 2, 3, 1, 2)
    assert found["theorem_holds"]
    broken = held([3869], ["no"])
    assert not diagnosis.agreement_table([broken], ["legacy_8tok"])["theorem_holds"][0]


def test_the_papers_agreement_counts(shared_data, released_answer_sets):
    table = diagnosis.agreement_table(released_answer_sets, ["legacy_2tok", "legacy_8tok"])
    two = table[(table["model"] == "llava15") & (table["readout"] == "legacy_2tok")].set_index("split")
    assert two["agree"].to_dict() == {"adversarial": 2076, "popular": 2183, "random": 2302}
    assert (two["covered"] == 0).all()
    eight = table[(table["model"] == "llava15") & (table["readout"] == "legacy_8tok")]
    assert (eight["agree"] == 3000).all() and (eight["covered"] == 3000).all() and eight["theorem_holds"].all()


@pytest.mark.parametrize("questions", [0, 1])
def test_small_samples(questions):
    found = diagnosis.diagnose(held([3869], ["yes"]), "as_run", questions, ["legacy_8tok"])
    assert len(found) == questions
