"""Readouts on stored logits and texts: rules, ties, refusals, and Theorem 1 with its corollary."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workflow.lib import parsers, readouts, tokens
from workflow.lib.errors import BadInput
from workflow.lib.tokens import LEGACY_2TOK, LEGACY_8TOK, TokenSet

IDS = LEGACY_8TOK.ids
LLAMA_SET = TokenSet((4874, 3869), (694, 1939))


@dataclass
class View:
    """Rows in memory, as `readouts.LogitsView` asks for them."""

    ids: tuple = IDS
    logits: np.ndarray = field(default_factory=lambda: np.zeros((0, len(IDS)), np.float32))
    generated_text: list = field(default_factory=list)
    returned_text: list = field(default_factory=list)
    labels: list = field(default_factory=list)
    dynamic: TokenSet | None = LLAMA_SET
    source: str = "logits/m/s.parquet"


def view(*rows: dict, **others) -> View:
    """Rows of logits by token id; ids not named lie at -50."""
    logits = np.array([[row.get(token, -50.0) for token in IDS] for row in rows], dtype=np.float32)
    return View(logits=logits.reshape(len(rows), len(IDS)), **others)


def test_the_excluded_pair_against_the_emitted_token():
    # a row of the paper's kind: " No" is emitted, yet yes lies above no among the excluded forms
    rows = view({1939: 24.5, 3869: 24.0, 3582: 10.25, 1217: 10.0}, {3869: 24.5, 1939: 24.0, 3582: 9.0, 1217: 9.5})
    assert readouts.read("legacy_2tok", rows).answer.tolist() == ["yes", "no"]
    assert readouts.read("legacy_2tok", rows).margin.tolist() == [0.25, -0.5]
    for name in ("legacy_8tok", "dynamic_single"):
        assert readouts.read(name, rows).answer.tolist() == ["no", "yes"]
        assert readouts.read(name, rows).margin.tolist() == [-0.5, 0.5]


def test_a_tie_says_no_and_is_flagged():
    # question 77 of the adversarial diagnostic: both maxima at 24.6875
    got = readouts.read("legacy_8tok", view({3869: 24.6875, 1939: 24.6875}, {3869: 24.703125, 1939: 24.6875}))
    assert got.answer.tolist() == ["no", "yes"]
    assert got.tie.tolist() == [True, False]
    assert got.margin.tolist() == [0.0, 0.015625]


@pytest.mark.parametrize(("precision", "tie", "answer"), [
    ("as_stored", False, "yes"), ("float16", True, "no"), ("bfloat16", True, "no"),
])  # fmt: skip
def test_rounding_before_comparing(precision, tie, answer):
    got = readouts.read("legacy_8tok", view({3869: 21.3802, 1939: 21.3751}), precision)
    assert (got.tie.tolist(), got.answer.tolist()) == ([tie], [answer])


@pytest.mark.parametrize(("value", "rounded"), [
    (1.0, 1.0),
    (1.0 + 2**-8, 1.0),  # halfway between two bfloat16 values: to the even one
    (1.0 + 3 * 2**-8, 1.0 + 2**-6),
    (1.0 + 2**-8 + 2**-20, 1.0 + 2**-7),
    (-21.3802, -21.375),
    (0.0, 0.0),
])  # fmt: skip
def test_bfloat16_rounds_to_nearest_even(value, rounded):
    assert readouts.rounded(np.array([[value]], np.float32), "bfloat16").tolist() == [[rounded]]


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(-6e4, 6e4, width=32)))
def test_rounded_values_stay_as_they_are(logits):
    for precision in ("float16", "bfloat16"):
        once = readouts.rounded(logits, precision)
        assert once.dtype == np.float32
        assert np.array_equal(readouts.rounded(once, precision), once)
        assert (np.abs(once - logits) <= np.abs(logits) * 2**-8 + 2**-24).all()


def test_overflow_of_a_16_bit_format_is_refused():
    with pytest.raises(BadInput, match=r"logits/m/s.parquet: a logit of magnitude 70000 overflows float16"):
        readouts.read("legacy_8tok", view({3869: 7e4}), "float16")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            np.nan,
            "row 1 (counted from 0): the logit of token id 1217 is NaN, not a number; the model's arithmetic",
        ),
        (
            -np.inf,
            "row 1 (counted from 0): the logit of token id 1217 is -inf; a logits processor masked the token",
        ),
        (np.inf, "row 1 (counted from 0): the logit of token id 1217 is +inf; the model overflowed"),
    ],
)
@pytest.mark.parametrize("name", ["legacy_2tok", "dynamic_single"])
def test_values_that_are_no_logits_are_refused_each_by_name(name, value, sentence):
    with pytest.raises(BadInput) as refused:
        readouts.read(name, view({3869: 1.0}, {1217: value}))
    assert sentence in str(refused.value)


def test_an_undeclared_id_is_refused_by_name():
    rows = View(ids=(694, 1939, 3869, 4874), logits=np.zeros((1, 4), np.float32))
    with pytest.raises(
        BadInput, match=r"legacy_2tok needs token id 1217, which these rows do not declare \(declared: 694"
    ):
        readouts.read("legacy_2tok", rows)
    assert readouts.read("dynamic_single", rows).tie.tolist() == [True]


def test_a_dynamic_readout_without_a_set_is_refused():
    with pytest.raises(BadInput, match="dynamic_single needs the set derived from the model's tokenizer"):
        readouts.read("dynamic_single", view({}, dynamic=None))


@pytest.mark.parametrize(
    ("ids", "logits", "message"),
    [
        (IDS, np.zeros((2, 3), np.float32), r"logits of shape \(2, 3\) do not fit 8 declared ids"),
        (IDS, np.zeros(8, np.float32), r"logits of shape \(8,\) do not fit"),
        ((*IDS, 694), np.zeros((2, 9), np.float32), "each id once"),
        (IDS, np.zeros((2, 8)), "logits are float64 where float32 is expected"),
    ],
)
def test_misshapen_logits_are_refused(ids, logits, message):
    with pytest.raises(BadInput, match=message):
        readouts.read("legacy_8tok", View(ids=ids, logits=logits))


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(
        BadInput, match=r"'legacy_8tk' is not known, the nearest is 'legacy_8tok': choose one of legacy_2tok,"
    ):
        readouts.get("legacy_8tk")
    with pytest.raises(BadInput, match="precision 'fp16' is not known: choose one of as_stored, float16, bfloat16"):
        readouts.read("legacy_8tok", view({}), "fp16")


def test_the_registry_declares_every_readout_in_full():
    assert readouts.NAMES[:4] == ("legacy_2tok", "legacy_8tok", "dynamic_single", "dynamic_logsumexp")
    assert set(parsers.PARSERS) < set(readouts.NAMES)
    for name in readouts.NAMES:
        readout = readouts.get(name)
        assert readout.name == name and readout.source
        by_set = (readout.token_set is not None, bool(readout.aggregator), readout.tie == "no")
        by_text = (bool(readout.text), readout.parser is not None)
        assert (by_set, by_text) == (
            ((True,) * 3, (False,) * 2) if readout.kind == "token_set" else ((False,) * 3, (True,) * 2)
        )


def test_string_readouts_parse_their_own_text():
    rows = view(
        {}, {}, {},
        generated_text=["No", "Maybe", "Yes."],
        returned_text=["Question: Is it? Answer yes or no only. Answer: No", "Maybe", "no"],
        labels=["no", "yes", "yes"],
    )  # fmt: skip
    assert readouts.read("string_parse", rows).answer.tolist() == ["no", "unknown", "yes"]
    assert readouts.read("string_parse_returned", rows).answer.tolist() == ["yes", "unknown", "no"]
    assert readouts.read("vcd", rows).answer.tolist() == ["no", "no", "yes"]
    assert readouts.read("lmms_eval_pope", rows).answer.tolist() == ["no", "unknown", "unknown"]
    got = readouts.read("string_parse", rows, "float16")
    assert got.margin is None and not got.tie.any()


def test_string_readouts_want_a_text_and_a_label_a_row():
    with pytest.raises(BadInput, match="1 texts for 2 labels"):
        readouts.read("vcd", view({}, generated_text=["Yes"], labels=["yes", "no"]))


def test_empty_rows_give_empty_answers():
    for name in readouts.NAMES:
        got = readouts.read(name, View())
        assert len(got.answer) == len(got.tie) == len(got.frame()) == 0


def test_frames_hold_null_and_never_nan():
    rows = view({3869: 2.0, 1939: 0.5}, generated_text=["Yes"], labels=["yes"])
    scored = readouts.read("legacy_8tok", rows).frame()
    assert scored.to_dict("records") == [{"readout": "legacy_8tok", "answer": "yes", "tie": False, "margin": 1.5}]
    parsed = readouts.read("string_parse", rows).frame()
    assert str(parsed["margin"].dtype) == "Float32" and parsed["margin"].isna().all()
    assert not np.isnan(parsed["margin"].to_numpy(dtype=np.float32, na_value=0)).any()


def test_summed_probability_can_overrule_the_maximum():
    rows = view({3869: 1.0, 4874: 1.0, 1939: 1.5, 694: -20.0}, {3869: 1.0, 4874: 0.5, 1939: 0.5, 694: 1.0})
    assert readouts.read("dynamic_single", rows).answer.tolist() == ["no", "no"]
    summed = readouts.read("dynamic_logsumexp", rows)
    assert summed.answer.tolist() == ["yes", "no"]
    assert summed.tie.tolist() == [False, True]
    assert summed.margin[0] == pytest.approx(np.log(2 * np.e) - np.log(np.exp(1.5) + np.exp(-20)))


finite_rows = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 6), st.just(len(IDS))), elements=st.floats(-1e4, 1e4, width=32)
)


@given(finite_rows, st.sampled_from(readouts.PRECISIONS))
def test_answer_tie_and_margin_tell_the_same(logits, precision):
    for name in ("legacy_2tok", "legacy_8tok", "dynamic_single", "dynamic_logsumexp"):
        got = readouts.read(name, View(logits=logits), precision)
        assert np.isfinite(got.margin).all() and got.margin.dtype == np.float32
        assert ((got.answer == "yes") == (got.margin > 0)).all()
        assert (got.tie == (got.margin == 0)).all()


@given(finite_rows)
def test_the_drop_in_function_is_the_registered_rule(logits):
    got = readouts.read("legacy_8tok", View(logits=logits)).answer
    for row, answer in zip(logits, got, strict=True):
        vocabulary = dict(zip(IDS, row.tolist(), strict=True))
        assert readouts.drop_in_answer(vocabulary, LEGACY_8TOK.yes, LEGACY_8TOK.no) == answer


@given(finite_rows, st.randoms())
def test_the_order_of_declared_ids_does_not_matter(logits, random):
    order = random.sample(range(len(IDS)), len(IDS))
    for name in ("legacy_8tok", "dynamic_logsumexp"):
        here = readouts.read(name, View(logits=logits))
        there = readouts.read(name, View(ids=tuple(IDS[i] for i in order), logits=logits[:, order]))
        assert np.array_equal(here.margin, there.margin) and np.array_equal(here.answer, there.answer)


# Theorem 1 in a vocabulary of ten tokens; logits on a coarse grid, so that ties are frequent
FORMS = {0: "no", 2: " Yes", 3: "No", 5: "yes", 6: " No", 8: "Yes"}
YES, NO = {2, 5, 8}, {0, 3, 6}


@st.composite
def vocabularies(draw):
    logits = draw(hnp.arrays(np.float32, (12, 10), elements=st.integers(-2, 2).map(float)))
    yes = draw(st.sets(st.sampled_from(sorted(YES)), min_size=1))
    no = draw(st.sets(st.sampled_from(sorted(NO)), min_size=1))
    return logits, TokenSet(sorted(yes), sorted(no))


@given(vocabularies())
def test_theorem_1(drawn):
    """On a covered first token both agree unless the sides tie; an emitted no agrees even then."""
    logits, token_set = drawn
    emitted = logits.argmax(axis=1)  # the lowest of tied ids, as greedy decoding takes
    texts = [FORMS.get(int(token), "the") for token in emitted]
    got = readouts.read("dynamic_single", View(ids=tuple(range(10)), logits=logits, dynamic=token_set))
    compared = readouts.agreement(texts, emitted, got, token_set)
    assert compared.theorem_holds
    for text, token, answer, tie in zip(texts, emitted, got.answer, got.tie, strict=True):
        if token in token_set.no:
            assert answer == parsers.string_parse(text) == "no"
        if token in token_set.yes:
            assert answer == ("no" if tie else "yes") and parsers.string_parse(text) == "yes"


@given(st.sampled_from(sorted(YES | NO)), st.data())
def test_corollary_outside_the_set_the_readout_is_free(emitted, data):
    """With an emitted form outside the set, one and the same first token goes with either answer."""
    yes = data.draw(st.sampled_from(sorted(YES - {emitted})))
    no = data.draw(st.sampled_from(sorted(NO - {emitted})))
    token_set = TokenSet((yes,), (no,))
    answers = []
    for above, below in ((yes, no), (no, yes)):
        logits = np.full((1, 10), -3, np.float32)
        logits[0, [emitted, above, below]] = 0, -1, -2
        assert logits[0].argmax() == emitted
        got = readouts.read("dynamic_single", View(ids=tuple(range(10)), logits=logits, dynamic=token_set))
        compared = readouts.agreement([FORMS[emitted]], [emitted], got, token_set)
        assert (compared.covered, compared.theorem_holds) == (0, True)
        answers.append((str(got.answer[0]), compared.agree))
    assert [answer for answer, _ in answers] == ["yes", "no"]
    assert sum(agree for _, agree in answers) == 1


def test_agreement_counts_the_exception():
    # token 2 (yes) ties with token 3 (no); the lower id is emitted, the strict rule says no
    logits = np.array([[0, 0, 5, 5], [0, 0, 5, 4]], np.float32)
    token_set = TokenSet((2,), (3,))
    got = readouts.read("dynamic_single", View(ids=(0, 1, 2, 3), logits=logits, dynamic=token_set))
    compared = readouts.agreement([" Yes", " Yes"], [2, 2], got, token_set)
    assert compared == readouts.Agreement(n=2, agree=1, covered=2, tied=1, agree_untied=1)
    assert compared.theorem_holds


def test_warnings_name_what_the_set_misses():
    emitted = [1939] * 5 + [3869] * 3
    assert readouts.warnings_for("legacy_8tok", emitted, LEGACY_8TOK) == []
    assert readouts.warnings_for("legacy_2tok", emitted, LEGACY_2TOK) == [
        "legacy_2tok does not cover 8 of 8 emitted first tokens (100.0%: id 1939 in 5, id 3869 in 3), so "
        "those answers compare tokens that greedy decoding did not choose."
    ]
    (sentence,) = readouts.warnings_for("x", [3869, *range(10, 17)], tokens.LEGACY_8TOK)
    assert "7 of 8" in sentence and "id 10 in 1" in sentence and "and 2 further ids" in sentence
    assert readouts.warnings_for("legacy_2tok", [], LEGACY_2TOK) == []
