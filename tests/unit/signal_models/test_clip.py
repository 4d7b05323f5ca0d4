"""Both CLIP models: crops, similarities, and all parts joined into signals."""

import numpy as np
import pytest
import torch
from PIL import Image

from workflow.lib import corrections, files, items, logits, scenes, signal_parts, signals
from workflow.lib.errors import BadInput
from workflow.models import clip, engines, noise, subject
from workflow.models import signals as measured_signals
from workflow.models.mini import clips

from .subjects import SETTINGS, TEMPLATES, TOKEN_SETS, clip_settings, conditions


def test_crops_are_the_grid_and_the_whole():
    array = np.arange(9 * 13, dtype=np.uint8).reshape(9, 13)
    found = clip.crops(Image.fromarray(array))
    assert len(found) == 17
    assert np.array_equal(np.asarray(found[0]), array[:2, :3])
    assert np.array_equal(np.asarray(found[3]), array[:2, 9:12])
    assert np.array_equal(np.asarray(found[15]), array[6:8, 9:12])
    assert np.array_equal(np.asarray(found[16]), array)
    assert {crop.size for crop in clip.crops(Image.new("RGB", (3, 2)))} == {(1, 1), (3, 2)}


def test_windows_by_hand():
    # one object in the corner of the first cell, one that straddles four windows, one at the far end
    drawn = scenes.Scenes(
        objects=np.array([[4, 9, 23, -1]]),
        cells=np.array([[0, 4, 8, 1]]),
        shifts=np.array([[[0, 0], [2, 2], [5, 5], [0, 0]]]),
        visibility=np.ones((1, 4)),
    )
    table = clips.windows(drawn)[0]
    assert table.nonzero().tolist() == [[0, 4], [15, 23]]
    # 18..29 is split 6 : 5 by the border at 24, so no window holds two fifths of the square
    moved = scenes.Scenes(drawn.objects, drawn.cells, np.array([[[0, 0], [5, 5], [5, 5], [0, 0]]]), drawn.visibility)
    assert [5 + 5, 9] in clips.windows(moved)[0].nonzero().tolist()


def test_a_clip_checkpoint_is_sealed_and_trained_the_same_again(clip_folders, base_file, tmp_path):
    for name, folder in clip_folders.items():
        seal = files.read_json(folder / "checkpoint.json")
        assert -1 <= seal["calibration"]["median_similarity"] <= 1
        assert {path.name for path in folder.iterdir()} == {*seal["files"], "checkpoint.json"}
        clips.train_clip(name, clip_settings(name), base_file, tmp_path / name)
        assert files.read_json(tmp_path / name / "checkpoint.json") == seal


def test_the_base_tower_is_kept_as_it_is(clip_folders, adapters):
    held = clip.Clip(str(clip_folders["clip_l"] / "checkpoint.json"))
    own = clip.tower_of(adapters["llava15"]).state_dict()
    kept = held.model.vision_model.state_dict()
    assert kept.keys() == own.keys() and all(torch.equal(kept[name], own[name]) for name in own)


def test_patch_cosines_by_hand(clip_folders, adapters, pictures):
    held, adapter = clip.Clip(str(clip_folders["clip_l"] / "checkpoint.json")), adapters["llava15"]
    tower = clip.tower_of(adapter)
    rendered = TEMPLATES["llava15"]["text"]
    states = clip.tower_states(adapter, tower, pictures[:2], rendered)
    pixels = adapter.processor.image_processor(images=pictures[:2], return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        hidden = tower.pre_layrnorm(tower.embeddings(pixels))
        for layer in tower.encoder.layers:
            hidden = layer(hidden, attention_mask=None)
        patches = hidden[:, 1:] @ held.model.visual_projection.weight.T
        text = held.model.text_projection(
            held.model.text_model(**held.tokenizer(["car"], return_tensors="pt")).pooler_output
        )
        expected = torch.cosine_similarity(patches, text[:, None], dim=2)
    found = held.projected(states) @ held.texts(["car", "umbrella"]).T
    assert torch.allclose(found[..., 0], expected, atol=1e-5)
    assert torch.allclose(held.patches(pictures[:2]), held.projected(states), atol=1e-5)
    # the class position is what CLIPModel itself calls the image
    assert torch.allclose(held.class_position(states), held.whole(pictures[:2]), atol=1e-5)


def test_nouns_of_unequal_length_do_not_disturb_each_other(clip_folders):
    held = clip.Clip(str(clip_folders["clip_b"] / "checkpoint.json"))
    together = held.texts(["car", "imange", "red car or bus in the image"])
    alone = torch.cat([held.texts([text]) for text in ("car", "imange", "red car or bus in the image")])
    assert torch.allclose(together, alone, atol=1e-5)
    assert together.norm(dim=1).tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    assert torch.equal(clip.unit(torch.zeros(1, 3)), torch.zeros(1, 3))


def test_an_unknown_tower_is_named(base_file, tmp_path):
    settings = clip_settings("clip_l")
    settings["clip"] = settings["clip"] | {"tower": "new"}
    with pytest.raises(BadInput, match=r"mini\.clips\.clip_l\.tower is 'new': use base or own"):
        clips.train_clip("clip_l", settings, base_file, tmp_path / "clip_l")


def measure_all(root, polls, name: str, clip_folders: dict) -> dict:
    """All parts of one model's signals, through the functions that the rules call."""
    base = (*polls, str(root / name / "checkpoint.json"))
    out = root / "parts" / name
    for shard in range(2):
        measured_signals.infer(*base, str(out / f"{shard}.parquet"), shard=shard, signals=SETTINGS, **conditions(name))
    named = {which: str(clip_folders[f"clip_{which}"] / "checkpoint.json") for which in "bl"}
    clip.infer(*base, str(out / "clip.parquet"), clip=named, pattern="as_run", **conditions(name))
    shards = [(str(shard), signal_parts.load(out / f"{shard}.parquet")) for shard in range(2)]
    return {"shards": shards, "clip": ("clip", signal_parts.load(out / "clip.parquet"))}


def test_all_parts_of_a_model_join_into_signals(root, folders, polls, clip_folders, tmp_path):
    parts = measure_all(root, polls, "llava15", clip_folders)
    assert parts["clip"][1].frame["noun"].tolist()[6:9] == ["clock", "imange", "fork"]
    table, _ = items.load(polls[0])
    base = (*polls, str(root / "llava15/checkpoint.json"))
    before = set(engines.ENGINES)
    settings = {"seed": 9, "scale": 1.0}
    for shard in range(2):
        noise.infer(
            *base, str(tmp_path / f"{shard}.parquet"), kind="random_image", noise=settings, shard=shard,
            token_sets=TOKEN_SETS, **conditions("llava15"),
        )  # fmt: skip
    assert set(engines.ENGINES) == before
    merged = logits.merge([tmp_path / f"{shard}.parquet" for shard in range(2)], table)
    assert merged.identity["engine"] == "reference with random_image noise, seed 9"
    certainties = {which: {"slope": 20.0, "centre": 0.0} for which in "bl"}
    frame, metadata = signal_parts.join(
        table, noise={"random_image": ("noise", merged)}, settings=certainties, expected={"model": "llava15"}, **parts
    )
    signals.save(frame, tmp_path / "signals.parquet", metadata)
    frame, metadata = signals.load(tmp_path / "signals.parquet")
    assert set(metadata["missing"]) == {"vcd_yes_max_paper", "vcd_no_max_paper"}
    assert metadata["measured"]["layers"] == [1] and metadata["measured"]["token_set"] == "legacy_8tok"
    counted = corrections.sweep(frame)
    assert (counted[["tp", "fp", "fn", "tn"]].sum(axis=1) == 24).all()
    rows = counted.set_index(["method", "variant"])[["tp", "fp", "fn", "tn"]]
    # attention from the first position says nothing, so its gate is the baseline
    assert rows.loc[("cls_certainty", "as run")].tolist() == rows.loc[("baseline", "as run")].tolist()


def test_a_model_with_another_tower_has_no_clip_l_signal(root, folders, polls, clip_folders):
    parts = measure_all(root, polls, "instructblip", clip_folders)
    table, _ = items.load(polls[0])
    certainties = {which: {"slope": 20.0, "centre": 0.0} for which in "bl"}
    frame, metadata = signal_parts.join(table, noise={}, settings=certainties, expected={}, **parts)
    assert metadata["missing"]["clip_l_similarity"] == clip.NO_TOWER
    assert "clip_b_certainty" in frame and "clip_l_similarity" not in frame


@pytest.mark.parametrize("kept", ["llava/checkpoint.json", "llava.json"])
def test_an_incomplete_folder_is_named_wherever_its_manifest_lies(tmp_path, kept):
    (tmp_path / "llava").mkdir()
    (tmp_path / "llava/config.json").write_text("{}")
    manifest = {"files": {"config.json": files.sha256(tmp_path / "llava/config.json")}}
    assert subject.folder_of(tmp_path / kept) == tmp_path / "llava"
    subject.check_checkpoint(str(tmp_path / kept), manifest)
    (tmp_path / "llava/config.json").unlink()
    with pytest.raises(
        BadInput, match=r"llava/config.json is missing .*: delete .*llava/checkpoint\.json and run the same"
    ):
        subject.check_checkpoint(str(tmp_path / kept), manifest)
