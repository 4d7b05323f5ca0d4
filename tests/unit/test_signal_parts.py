import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import corrections, items, logits, signal_parts, signals
from workflow.lib.errors import BadInput
from workflow.lib.signal_parts import Part

IDS = {"yes": [7], "no": [8, 9]}
IDENTITY = dict.fromkeys(signal_parts.AGREE, "same") | {"split": "random"}


def questions(count: int = 4) -> pa.Table:
    rows = [
        {
            **{"dataset": "d", "split": "random", "id": number, "image": "i.png", "question": "Is there a car?"},
            **{"label": "no" if number % 2 else "yes", "object": "car"},
        }
        for number in range(1, count + 1)
    ]
    return pa.Table.from_pylist(rows, schema=items.SCHEMA)


def keys(ids) -> dict:
    return {"dataset": "d", "split": "random", "id": np.array(ids, np.int64)}


def attention_part(ids, shard: int = 0, **values) -> Part:
    columns = {name: np.full(len(ids), 0.5, np.float32) for name in signal_parts.ATTENTION}
    columns |= {"yes_max": np.array(ids, np.float32), "no_max": np.full(len(ids), 2, np.float32)} | values
    measured = {"ids": IDS, "token_set": "legacy_8tok"}
    return Part(pd.DataFrame(keys(ids) | columns), IDENTITY | {"shard": shard, "measured": measured})


def clip_part(ids, which: str = "bl", **changed) -> Part:
    names = [name for one in which for name in signal_parts.SIMILARITIES[one]]
    columns = {name: np.linspace(-0.5, 0.9, len(ids), dtype=np.float32) for name in names}
    missing = {one: "no tower" for one in "bl" if one not in which}
    return Part(pd.DataFrame(keys(ids) | columns), IDENTITY | {"measured": {}, "missing": missing} | changed)


def noise_pass(ids, **changed) -> logits.Logits:
    columns = {f"logit_{token}": np.array(ids, np.float32) * token for token in (7, 8, 9)}
    table = pa.table(
        {key: pa.array(np.broadcast_to(value, len(ids)).tolist()) for key, value in keys(ids).items()} | columns
    )
    return logits.Logits(table, IDENTITY | {"engine": "reference with noise"} | changed)


SETTINGS = {"b": {"slope": 20.0, "centre": 0.22}, "l": {"slope": 25.0, "centre": 0.27}}


def joined(**changed):
    arguments = {
        "questions": questions(),
        "shards": [("0", attention_part([1, 2])), ("1", attention_part([3, 4], 1))],
        "clip": ("clip", clip_part([4, 3, 2, 1])),
        "noise": {"random_image": ("noise", noise_pass([2, 1, 4, 3]))},
        "settings": SETTINGS,
        "expected": {},
    }
    return signal_parts.join(**(arguments | changed))


def test_parts_are_joined_by_key_and_pass_the_contract(tmp_path):
    frame, metadata = joined()
    signals.save(frame, tmp_path / "signals.parquet", metadata)
    frame, metadata = signals.load(tmp_path / "signals.parquet")
    assert frame["id"].tolist() == [1, 2, 3, 4]
    # yes_max is the id and no_max 2; the tie of id 2 says no
    assert frame["answer"].tolist() == ["no", "no", "yes", "yes"]
    assert frame["vcd_yes_max"].tolist() == [7, 14, 21, 28] and frame["vcd_no_max"].tolist() == [9, 18, 27, 36]
    # clip rows came in reverse order
    assert frame["clip_l_similarity"].tolist() == pytest.approx([0.9, 0.433333, -0.033333, -0.5], abs=1e-5)
    expected = 1 / (1 + np.exp(-25 * (frame["clip_l_similarity"].astype(float) - 0.27)))
    assert frame["clip_l_certainty"].to_numpy() == pytest.approx(expected.to_numpy(), abs=1e-6)
    assert frame["cls_certainty_paper"].tolist() == pytest.approx([0.9, 0.433333, 0, 0], abs=1e-5)
    assert set(metadata["missing"]) == {"vcd_yes_max_paper", "vcd_no_max_paper"}


def test_a_study_without_clip_and_noise_still_counts_what_it_has(tmp_path):
    frame, metadata = joined(clip=None, noise={}, settings={})
    signals.save(frame, tmp_path / "signals.parquet", metadata)
    assert metadata["missing"]["clip_b_certainty"] == "signals.clip.b names no checkpoint"
    assert metadata["missing"]["vcd_yes_max"] == "signals.noise.kinds does not name random_image"
    counted = corrections.sweep(frame)
    assert set(counted["method"]) == {
        *("baseline", "uniform", "entropy_certainty", "object_noun_certainty", "magnitude_certainty"),
        *("cls_certainty", "midpoint_certainty"),
    }
    assert not counted.isna().to_numpy().any()


def test_a_clip_model_that_does_not_fit_the_tower_is_labelled():
    frame, metadata = joined(clip=("clip", clip_part([1, 2, 3, 4], "b")))
    assert "clip_l_similarity" not in frame and "clip_b_certainty" in frame
    assert metadata["missing"]["clip_l_certainty"] == "no tower"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"clip": ("c", clip_part([1, 2, 3]))},
            r"c: question \('d', 'random', 4\) is missing \(1 missing, 0 foreign\)",
        ),
        ({"clip": ("c", clip_part([1, 2, 3, 4, 5]))}, r"c: question \('d', 'random', 5\) is not among the items"),
        ({"clip": ("c", clip_part([1, 2, 3, 3]))}, r"c: question \('d', 'random', 3\) occurs more than once"),
        ({"shards": [("0", attention_part([1, 2, 3]))]}, r"0: question .* is missing"),
        (
            {"clip": ("c", clip_part([1, 2, 3, 4], checkpoint="other"))},
            r"c and 0 do not belong together \(checkpoint: other \| same\)",
        ),
        (
            {"noise": {"random_image": ("n", noise_pass([1, 2, 3, 4], dtype="float16"))}},
            r"n and 0 do not belong together \(dtype",
        ),
        ({"expected": {"revision": "new"}}, r"0 was made with revision same where the configuration says new"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(changed, message):
    with pytest.raises(BadInput, match=message):
        joined(**changed)


def test_shards_of_different_settings_are_refused():
    other = attention_part([3, 4], 1)
    other.identity["measured"] = other.identity["measured"] | {"token_set": "dynamic_single"}
    with pytest.raises(BadInput, match="1 and 0 were measured under different signal settings"):
        joined(shards=[("0", attention_part([1, 2])), ("1", other)])


def test_a_noise_pass_without_the_ids_is_named():
    held = noise_pass([1, 2, 3, 4])
    short = logits.Logits(held.table.drop_columns(["logit_9"]), held.identity)
    with pytest.raises(BadInput, match=r"n stores no logit of id 9: add its token set"):
        joined(noise={"random_image": ("n", short)})


def test_a_number_that_is_not_finite_is_refused_and_nothing_is_left(tmp_path):
    frame = clip_part([1, 2]).frame.astype({"clip_l_similarity": np.float32})
    frame.loc[1, "clip_l_similarity"] = np.nan
    with pytest.raises(BadInput, match="id 2: clip_l_similarity is nan where a finite number"):
        signal_parts.save(frame, tmp_path / "part.parquet", {})
    assert list(tmp_path.iterdir()) == []


def test_a_part_comes_back_as_it_was_saved(tmp_path):
    frame = clip_part([3, 1]).frame.assign(noun=["car", "imange"])
    signal_parts.save(frame, tmp_path / "part.parquet", {"measured": {"nouns": "as_run"}})
    found = signal_parts.load(tmp_path / "part.parquet")
    pd.testing.assert_frame_equal(found.frame, frame, check_dtype=False)
    assert found.identity == {"measured": {"nouns": "as_run"}}
    (tmp_path / "part.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInput, match="is not a whole Parquet file"):
        signal_parts.load(tmp_path / "part.parquet")


@given(st.floats(-1, 1), st.floats(0.01, 1e4), st.floats(-1, 1))
def test_sigmoid_is_a_certainty(similarity, slope, centre):
    value = signal_parts.sigmoid(np.array([similarity]), slope, centre)[0]
    assert 0 <= value <= 1
    assert (value >= 0.5) == (similarity >= centre) or value == pytest.approx(0.5)


def test_the_centre_is_a_number_or_the_median_of_the_checkpoint():
    manifest = {"calibration": {"median_similarity": 0.31}}
    assert signal_parts.centre({"centre": 0.22}, manifest, "b") == 0.22
    assert signal_parts.centre({"centre": "median"}, manifest, "b") == 0.31
    with pytest.raises(BadInput, match=r"signals\.clip\.l\.centre is 'median' but the checkpoint states no median"):
        signal_parts.centre({"centre": "median"}, {"files": {}}, "l")


def test_the_engine_name_of_a_noise_pass_states_all_that_moves_a_logit():
    names = {
        signal_parts.noise_engine(kind, {"seed": seed, "scale": scale})
        for kind in signal_parts.NOISES
        for seed in (1, 2)
        for scale in (0.5, 1.0)
    }
    assert len(names) == 2 + 4
