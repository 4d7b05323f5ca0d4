"""The named parsers on the answers where they differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib.errors import BadInput
from workflow.lib.parsers import PARSERS

ECHO = "Question: Is there a dog in the image? Answer yes or no only. Answer: no"
CODES = {"y": "yes", "n": "no", "-": "unknown"}

# answer: POPE and LLaVA, OPERA, VCD on label yes, on label no, lmms-eval POPE, MME, VLMEvalKit, companion
MATRIX = {
    "Yes.": "yyyy-yyy",
    "No.": "nnnn-nnn",
    "NO": "ynnnnnnn",
    "no\n": "yynnnnnn",
    "No\n\nThe image": "yynn-nnn",
    "Yes, there is a snowboard in the image.": "yyyn-yyy",
    "Yes, there is no doubt about it.": "nnyn-y-y",
    "Yes. There is no cat, though.": "ynyn-y-y",
    "There is a dog in the image.": "yyny----",
    "There is no dog in the image.": "nnnn--nn",
    "There isn't a dog.": "ynny----",
    "There isn’t a dog.": "yyny----",
    "None": "yynn-n--",
    "Nope": "yynn-n--",
    "Not sure": "yynn-n--",
    "I don't know": "ynnn----",
    "Now I see it: yes": "yyyn-nyy",
    "": "yyny----",
    "   ": "yyny----",
    "maybe": "yyny----",
    "是": "yyny----",
    "n": "yyny-n--",
    "Yes/No": "yyyn-y-y",
    "<think>\n\n</think>\n\nYes": "yyyy--yy",
    ECHO: "nnyn---y",
    "It is 3.5 m away, no dog": "ynnn--nn",
    "No.Yes": "nyyn-n-n",
}
COLUMNS = (
    ("pope_official", ""),
    ("opera", ""),
    ("vcd", "yes"),
    ("vcd", "no"),
    ("lmms_eval_pope", ""),
    ("mme", ""),
    ("vlmevalkit", ""),
    ("string_parse", ""),
)
CELLS = [
    pytest.param(text, name, label, CODES[code], id=f"{name}{label and '-'}{label}-{text!a}")
    for text, verdicts in MATRIX.items()
    for (name, label), code in zip(COLUMNS, verdicts, strict=True)
]


@pytest.mark.parametrize(("text", "name", "label", "verdict"), CELLS)
def test_matrix(text, name, label, verdict):
    assert PARSERS[name](text, label) == verdict


@pytest.mark.parametrize(("text", "answer"), [
    ("yes", "yes"), ("Yes", "yes"), (" Yes", "yes"), ("YES", "yes"),
    ("No", "no"), ("no", "no"), (" No", "no"),
])  # fmt: skip
@pytest.mark.parametrize(("name", "label"), COLUMNS)
def test_bare_words_agree_everywhere(text, answer, name, label):
    assert PARSERS[name](text, label) == answer


def test_string_parse_reads_64_characters_after_stripping():
    assert PARSERS["string_parse"]("\n " + 61 * "-" + "yes") == "yes"
    assert PARSERS["string_parse"](62 * "-" + "yes") == "unknown"
    # the cut makes a word out of the beginning of another one
    assert PARSERS["string_parse"](62 * "-" + "notice") == "no"


def test_string_parse_needs_whole_words():
    assert PARSERS["string_parse"]("snow, eyes, yes_no, yesterday") == "unknown"
    assert PARSERS["string_parse"]("(no) yes") == "no"


def test_only_string_parse_reads_the_echoed_prompt_as_yes():
    assert [name for name, parser in PARSERS.items() if parser(ECHO, "no") == "yes"] == ["string_parse"]


def test_vcd_takes_letters_for_words_and_needs_the_label():
    assert PARSERS["vcd"]("eyes", "yes") == "yes"
    assert PARSERS["vcd"]("SNOW", "no") == "no"
    with pytest.raises(BadInput, match=r"vcd rule needs the true label, yes or no, but got ''"):
        PARSERS["vcd"]("Yes")


def test_mme_reads_one_letter_and_four_characters():
    assert [PARSERS["mme"](text) for text in ("y", "n.", "x", "1 no", "12 no", "..yes")] == [
        "yes", "no", "unknown", "no", "unknown", "yes",
    ]  # fmt: skip


def test_vlmevalkit_keeps_the_punctuation_rule_of_the_vqa_evaluation():
    # a mark that touches a space vanishes and glues its neighbours; elsewhere it separates them
    assert PARSERS["vlmevalkit"]("a-no") == "no"
    assert PARSERS["vlmevalkit"]("a-no - b") == "unknown"
    assert PARSERS["vlmevalkit"]("a-no 1,000") == "unknown"
    # 32 full stops are deleted, not more, and none before a digit
    assert PARSERS["vlmevalkit"]("no" + 32 * ".") == "no"
    assert PARSERS["vlmevalkit"]("no" + 33 * ".") == "unknown"
    assert PARSERS["vlmevalkit"]("no.1") == "unknown"


@given(text=st.text(max_size=80), label=st.sampled_from(["yes", "no"]))
def test_every_rule_gives_one_of_three_verdicts(text, label):
    for name, parser in PARSERS.items():
        allowed = {"yes", "no"} if name in ("pope_official", "opera", "vcd") else {"yes", "no", "unknown"}
        assert parser(text, label) in allowed


def test_rules_carry_their_name_version_and_origin():
    assert all(parser.name == name and parser.version >= 1 and parser.source for name, parser in PARSERS.items())
    assert [name for name, parser in PARSERS.items() if parser.needs_label] == ["vcd"]
