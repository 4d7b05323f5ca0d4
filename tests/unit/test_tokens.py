"""Token sets: the paper's ids, and the sets of three tokenizer families as their tokenizers give them."""

import numpy as np
import pytest

from workflow.lib import tokens
from workflow.lib.errors import BadInput
from workflow.lib.tokens import TokenSet

# what each tokenizer gives for the eight forms without special tokens
LLAMA = {
    "yes": [4874],
    "Yes": [3869],
    " yes": [29871, 4874],
    " Yes": [29871, 3869],
    "no": [694],
    "No": [1939],
    " no": [29871, 694],
    " No": [29871, 1939],
}
MISTRAL = {
    "yes": [5081],
    "Yes": [5592],
    " yes": [28705, 5081],
    " Yes": [28705, 5592],
    "no": [708],
    "No": [1770],
    " no": [28705, 708],
    " No": [28705, 1770],
}
QWEN = {
    "yes": [9693],
    "Yes": [9454],
    " yes": [9834],
    " Yes": [7414],
    "no": [2152],
    "No": [2753],
    " no": [902],
    " No": [2308],
}


def test_the_papers_sets():
    assert TokenSet((3582,), (1217,)) == tokens.LEGACY_2TOK
    assert TokenSet((3582, 8241, 4874, 3869), (1217, 3782, 694, 1939)) == tokens.LEGACY_8TOK
    assert tokens.LEGACY_8TOK.ids == (694, 1217, 1939, 3582, 3782, 3869, 4874, 8241)
    assert tokens.YES_FORMS == ("yes", "Yes", " yes", " Yes")
    assert tokens.NO_FORMS == ("no", "No", " no", " No")


@pytest.mark.parametrize(
    ("vocabulary", "yes", "no"),
    [
        (LLAMA, (4874, 3869), (694, 1939)),
        (MISTRAL, (5081, 5592), (708, 1770)),
        (QWEN, (9693, 9454, 9834, 7414), (2152, 2753, 902, 2308)),
    ],
    ids=["llama", "mistral", "qwen"],
)
def test_dynamic_single_of_three_families(vocabulary, yes, no):
    assert tokens.dynamic_single(vocabulary.__getitem__) == TokenSet(yes, no)


def test_dynamic_single_counts_a_shared_id_once_and_keeps_the_order():
    merged = {**QWEN, "yes": [9], "Yes": [3], " yes": [9], " Yes": [3]}
    assert tokens.dynamic_single(merged.__getitem__).yes == (9, 3)


def test_form_table_of_mistral_is_table_10():
    rows = tokens.form_table(MISTRAL.__getitem__)
    assert [row.form for row in rows] == ["yes", "Yes", " yes", " Yes", "no", "No", " no", " No"]
    assert [row.single for row in rows] == [True, True, False, False] * 2
    assert rows[3] == ("yes", " Yes", (28705, 5592), False)


def test_dynamic_single_without_a_single_form_says_so():
    bytes_only = {form: list(form.encode()) for form in (*tokens.YES_FORMS, *tokens.NO_FORMS)}
    with pytest.raises(BadInput, match=r"no yes form is a single token .*'yes' -> \[121, 101, 115\].*string_parse"):
        tokens.dynamic_single(bytes_only.__getitem__)
    with pytest.raises(BadInput, match="no no form is a single token"):
        tokens.dynamic_single({**bytes_only, "yes": [1]}.__getitem__)


def test_dynamic_single_refuses_an_unknown_token_on_both_sides():
    with pytest.raises(BadInput, match=r"'Yes' -> \[0\].*token id 0 stands for yes and for no"):
        tokens.dynamic_single(lambda form: [0])


def test_a_form_that_encodes_to_nothing_is_not_single():
    assert tokens.dynamic_single({**QWEN, "yes": []}.__getitem__).yes == (9454, 9834, 7414)


@pytest.mark.parametrize(
    ("yes", "no", "message"),
    [
        ((1, 2), (2, 3), "token id 2 stands for yes and for no"),
        ((), (1,), "the yes side of a token set is empty"),
        ((1,), (), "the no side of a token set is empty"),
        ((1, 1), (2,), r"the yes side of a token set repeats an id \(\[1, 1\]\)"),
        ((-1,), (2,), "-1 on the yes side of a token set is no token id"),
        ((1,), (True,), "True on the no side of a token set is no token id"),
        ((1,), (2.0,), "2.0 on the no side of a token set is no token id"),
        (("3582",), (2,), "'3582' on the yes side of a token set is no token id"),
    ],
)
def test_impossible_sets_are_refused(yes, no, message):
    with pytest.raises(BadInput, match=message):
        TokenSet(yes, no)


def test_sets_from_json_and_numpy_are_plain():
    held = TokenSet([3, 1], np.array([2], dtype=np.int32))
    assert held == TokenSet((3, 1), (2,))
    assert all(type(token) is int for token in held.ids)


def test_declared_ids_is_the_ascending_union():
    assert tokens.declared_ids([TokenSet((9,), (4,)), TokenSet((4,), (9, 1))]) == (1, 4, 9)
    assert tokens.declared_ids([]) == ()
