import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import nouns
from workflow.lib.errors import BadInput


@pytest.mark.parametrize(
    ("question", "as_run", "fixed"),
    [
        ("Is there a snowboard in the image?", "snowboard", "snowboard"),
        ("Is there an umbrella in the image?", "umbrella", "umbrella"),
        ("Is there a dining table in the image?", "dining table", "dining table"),
        ("is there a Car in the image ?", "Car", "Car"),
        ("Is there an orange in the imange?", "imange", "orange"),
        ("Do you see a car?", "car", "car"),
    ],
)
def test_noun_by_pattern(question, as_run, fixed):
    assert nouns.noun(question, "as_run") == as_run
    assert nouns.noun(question, "fixed") == fixed


def test_the_misspelt_ending_stands_among_the_attended_words_as_it_was_run():
    assert nouns.attended("Is there an orange in the imange?", "as_run") == ["orange", "imange"]
    assert nouns.attended("Is there an orange in the imange?", "fixed") == ["orange"]
    assert nouns.attended("Is there a hot dog in the image?") == ["hot", "dog"]


def test_unknown_pattern_and_empty_question_are_named():
    with pytest.raises(BadInput, match="noun pattern 'new' is not known: use as_run or fixed"):
        nouns.noun("Is there a car in the image?", "new")
    with pytest.raises(BadInput, match=r"question ' \? ' has no word"):
        nouns.noun(" ? ")


def test_misspelt_questions_of_the_real_file(shared_data):
    import json

    path = shared_data / "pope/9b5410653a70098c433574841a1804b89f573575/coco_pope_adversarial.json"
    asked = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    differ = [question for question in asked if nouns.noun(question, "as_run") != nouns.noun(question, "fixed")]
    assert len(asked) == 3000 and len(differ) == 57
    assert {nouns.noun(question, "as_run") for question in differ} == {"imange"}
    assert all(nouns.places(["▁" + word for word in question.rstrip("?").split()], ["in"]) for question in asked)


PIECES = [
    "<s>",
    "▁USER",
    ":",
    "▁",
    "",
    "",
    "<0x0A>",
    "Is",
    "▁there",
    "▁a",
    "▁snow",
    "board",
    "▁in",
    "▁the",
    "▁image",
    "?",
]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["snowboard"], [10, 11]),
        (["in", "Image"], [12, 14]),
        (["snow"], []),
        (["board"], []),
        (["a snowboard in"], [9, 10, 11, 12]),
        ([], []),
        (["s"], [0]),
    ],
)
def test_places_are_whole_words_over_token_borders(words, expected):
    assert [place for place in nouns.places(PIECES, words) if PIECES[place] not in ("▁",)] == expected


def test_byte_level_pieces():
    pieces = ["<|im_end|>", "Ċ", "Is", "Ġthere", "Ġa", "Ġhot", "Ġdog", "Ġin"]
    assert nouns.places(pieces, ["hot dog"]) == [5, 6]
    assert nouns.places(pieces, ["is"]) == [2]


@given(st.lists(st.sampled_from(["▁in", "▁on", "in", "", "▁inn", "?"]), max_size=12))
def test_a_found_place_holds_a_letter_of_the_word(pieces):
    found = nouns.places(pieces, ["in"])
    assert found == sorted(set(found))
    assert all(pieces[place] in ("▁in", "in") for place in found)
    assert all(
        place in found
        for place, piece in enumerate(pieces)
        if piece == "▁in" and pieces[place + 1 : place + 2] != ["in"]
    )
