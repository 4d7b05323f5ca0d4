import numpy as np
import pyarrow as pa
import pytest

from workflow.lib import engine_agreement, logits
from workflow.lib.errors import BadInput
from workflow.lib.logits import Logits

IDS = sorted((3582, 8241, 4874, 3869, 1217, 3782, 694, 1939))
READOUTS = ["legacy_2tok", "legacy_8tok", "string_parse"]


def identity(**changes):
    fields = dict.fromkeys((*logits.MOVES_A_LOGIT, *logits.DESCRIBES), "x")
    return fields | {"engine": "reference", "candidate_ids": IDS, "token_sets": {}, "device_name": "cpu"} | changes


def row(number, values, top, generated):
    """One row: logits of yes (3582) and no (1217) and of " Yes", " No"; all else is far below."""
    held = dict.fromkeys(IDS, -10.0) | values
    return {
        **{"dataset": "pope", "split": "random", "id": number, "image": f"i{(number - 1) // 2}"},
        **{"prompt_sha256": "p", "image_tokens": 9, "argmax_id": top[0][0], "argmax_text": "t", "logsumexp": 20.0},
        **{f"logit_{token}": value for token, value in held.items()},
        **{f"rank_{token}": 1 for token in IDS},
        "top_ids": [token for token, _ in top],
        "top_logits": [value for _, value in top],
        "generated_ids": generated,
        **{"generated_text": {3869: "Yes", 1939: "No"}[generated[0]], "returned_text": "t"},
        **{"returned_prompt": False, "seconds": 0.1},
    }


def top(first, value, second, other):
    return [(first, value), (second, other), *((100 + i, 0.0 - i) for i in range(logits.TOP - 2))]


def run(rows, engine="reference", **changes):
    table = pa.Table.from_pylist(rows, schema=logits.schema(IDS))
    return Logits(table, identity(engine=engine, rows=len(rows), **changes)), f"{engine}.parquet"


def questions(numbers):
    return pa.table(
        {
            "dataset": ["pope"] * len(numbers),
            "split": ["random"] * len(numbers),
            "id": pa.array(numbers, pa.int64()),
            "image": [f"i{(number - 1) // 2}" for number in numbers],
            "label": ["yes", "no"] * (len(numbers) // 2) + ["yes"] * (len(numbers) % 2),
        }
    )


# question 1: clear; question 2: a tie's width from the other answer; question 3: outside the sample
REFERENCE = [
    row(1, {3869: 9.0, 1939: 4.0, 3582: 2.0, 1217: 1.0}, top(3869, 9.0, 1939, 4.0), [3869, 2]),
    row(2, {3869: 5.0, 1939: 5.25, 3582: 1.0, 1217: 1.0}, top(1939, 5.25, 3869, 5.0), [1939, 2]),
    row(3, {3869: 5.0, 1939: 1.0}, top(3869, 5.0, 1939, 1.0), [3869, 2]),
]
OTHER = [
    row(2, {3869: 5.5, 1939: 5.25, 3582: 1.0, 1217: 1.0}, top(3869, 5.5, 1939, 5.25), [3869, 2]),
    row(1, {3869: 9.0, 1939: 4.0, 3582: 2.0, 1217: 1.25}, top(3869, 9.0, 7, 4.0), [3869, 1939, 2]),
]


@pytest.mark.parametrize("swapped", [False, True])
def test_differences_and_flips(swapped):
    runs = [run(REFERENCE), run(OTHER, "shared_prefix", shards=1, code="other")]
    frame = engine_agreement.compare(runs[::-1] if swapped else runs, questions([1, 2]), READOUTS, "as_stored")
    assert tuple(frame.columns) == engine_agreement.COLUMNS
    assert (frame["engine"] == "shared_prefix").all()
    assert frame["readout"].tolist() == READOUTS
    for column, value in {
        "images": 1,
        "questions": 2,
        "argmax_flips": 1,
        "text_flips": 2,
        "max_delta_logit": 0.5,
    }.items():
        assert (frame[column] == value).all(), column
    assert frame["answer_flips"].tolist() == [0, 1, 1]
    # two-token margins of the reference: 1.0 and a tie; eight-token margins: 5.0 and -0.25
    assert frame["smallest_margin"].tolist() == [0.0, 0.25, ""]
    assert frame["margins_near_zero"].tolist() == [2, 1, ""]


def test_equal_runs_agree():
    frame = engine_agreement.compare(
        [run(REFERENCE), run(REFERENCE, "shared_prefix")], questions([1, 2, 3]), READOUTS, "as_stored"
    )
    assert not frame[["max_delta_logit", "argmax_flips", "text_flips", "answer_flips"]].to_numpy().any()
    assert frame["images"].tolist() == [2] * 3
    # no difference at all could still flip the two exact ties
    assert frame["margins_near_zero"].tolist() == [2, 0, ""]


def test_top_logits_count_where_both_list_the_id():
    moved = [dict(REFERENCE[0], top_logits=[9.0, 4.0, -0.75, *REFERENCE[0]["top_logits"][3:]])]
    assert engine_agreement.delta(run(REFERENCE[:1])[0], run(moved)[0]) == 0.75
    moved[0]["top_ids"] = [3869, 1939, 99, *REFERENCE[0]["top_ids"][3:]]
    assert engine_agreement.delta(run(REFERENCE[:1])[0], run(moved)[0]) == 0.0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (run(OTHER), r"by the engines reference and reference: compare one with reference"),
        (run(OTHER, "shared_prefix", dtype="float16"), r"differ in more than the engine \(dtype: x \| float16\)"),
        (run(OTHER[:1], "shared_prefix"), r"shared_prefix\.parquet lacks question \('pope', 'random', 1\)"),
    ],
)
def test_runs_that_cannot_be_compared(other, message):
    with pytest.raises(BadInput, match=message):
        engine_agreement.compare([run(REFERENCE), other], questions([1, 2]), READOUTS, "as_stored")


@pytest.mark.parametrize(("images", "expected"), [(1, [1, 2]), (2, [1, 2, 3, 4]), (9, [1, 2, 3, 4])])
def test_a_sample_lies_in_the_first_shard(images, expected):
    table = questions(list(range(1, 9)))
    assert engine_agreement.sample(table, 2, images)["id"].to_pylist() == expected
    assert np.array_equal(engine_agreement.sample(table, 1, 9)["id"], range(1, 9))
