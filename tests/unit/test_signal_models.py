"""The instrumented pass, CLIP and noise on tiny random checkpoints of the true classes."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import eager_attention_forward

from workflow.lib import corrections, files, items, logits, prompts, scenes, signal_parts, signals, tokens
from workflow.lib.errors import BadInput
from workflow.models import attention, clip, engines, noise, subject
from workflow.models import images as image_files
from workflow.models import signals as measured_signals
from workflow.models.adapter import load_adapter
from workflow.models.engines import Question
from workflow.models.mini import builders, clips, tokenizers
from workflow.models.mini.base import spread
from workflow.models.precision import Precision

FAMILIES = {"llava15": "llava", "llava16_mistral": "llava_next"}
SHAPE = {
    **{"width": 64, "heads": 4, "text_layers": 3, "text_mlp": 64, "rope_theta": 1e6, "vision_layers": 2},
    **{"vision_mlp": 64, "qformer_mlp": 64, "qwen_vision_layers": 1, "qwen_vision_width": 32},
}
TEXT = "{question} Answer yes or no only."
TEMPLATES = {
    "llava15": {"kind": "text", "text": "USER: <image>\n" + TEXT + "\nASSISTANT:"},
    "llava16_mistral": {"kind": "text", "text": "USER: <image>\n" + TEXT + "\nASSISTANT:"},
    "instructblip": {"kind": "text", "text": "Question: " + TEXT + " Answer:"},
    "mplug_owl2": {"kind": "text", "text": "USER: <|image|>" + TEXT + "\nASSISTANT:"},
    "qwen2_vl": {"kind": "chat", "text": TEXT},
}
# prompts of unequal length, one of them without a spatial word
ASKED = ["Is there a car in the image?", "Is there an umbrella?", "Is there a car there in the image?"]
# the same for the family whose code cannot pad
ASKED_ALIKE = ["Is there a car in the image?", "Is there a car there the image?", "Is there a cup in the image?"]
SETTINGS = {
    "band": {"first": 14, "end": 20, "of": 32},
    "image_span": "image",
    "nouns": "as_run",
    "spatial_words": ["in", "on"],
}
TOKEN_SETS = {"llama": {"yes": [3582, 8241, 4874, 3869], "no": [1217, 3782, 694, 1939]}}
RUN = {
    **{"shards": 2, "engine": "reference", "batch_size": 5, "device": "cpu", "dtype": "float32"},
    **{"quantisation": "none", "attention": "sdpa", "threads": 1},
}


def write_checkpoint(name: str, folder) -> None:
    torch.manual_seed(3)
    model = builders.build(name, SHAPE, builders.SIZES[name])
    spread(model, 0.1)
    builders.set_special_ids(name, model)
    model.save_pretrained(folder)
    builders.save_processor(name, tokenizers.for_model(name), folder)
    held = {path.relative_to(folder).as_posix(): files.sha256(path) for path in folder.rglob("*") if path.is_file()}
    files.write_json({"model": name, "files": held}, folder / "checkpoint.json")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def folders(root):
    for name in builders.SIZES:
        write_checkpoint(name, root / name)
    return {name: root / name for name in builders.SIZES}


@pytest.fixture(scope="module")
def adapters(folders):
    return {name: load_adapter(FAMILIES.get(name, name), folders[name], Precision()) for name in folders}


@pytest.fixture(scope="module")
def pictures():
    drawn, rng = scenes.test_scenes(4, 0, scenes.World())
    return [Image.fromarray(array) for array in scenes.render(drawn, rng)]


@pytest.fixture(scope="module")
def polls(root, pictures):
    """Items of four scenes, six questions each, with images and their hashes as the rules hand them over."""
    table = []
    for number, picture in enumerate(pictures, start=1):
        path = root / "scenes/images" / scenes.image_name(number)
        image_files.save_png(np.asarray(picture), path)
        table.append((path.name, files.sha256(path)))
    files.write_csv(pd.DataFrame(table, columns=["image", "sha256"]), root / "scenes/images.csv")
    rows = [
        {
            **{"dataset": "tiny", "split": "random", "id": number + 1, "image": table[number // 6][0]},
            **{"question": scenes.question(scenes.NAMES[number]), "label": ("yes", "no")[number % 2], "object": ""},
        }
        for number in range(24)
    ]
    rows[7]["question"] = "Is there an egg in the imange?"
    items.save(items.pa.Table.from_pylist(rows, schema=items.SCHEMA), root / "items.parquet", ORIGIN)
    return str(root / "items.parquet"), str(root / "scenes/images.csv")


ORIGIN = {"dataset": "tiny", "split": "random", "revision": "r", "sha256": "0"}


def template(name: str) -> prompts.Template:
    return prompts.Template("as_run", **TEMPLATES[name])


def asked_of(name: str) -> list[str]:
    return ASKED_ALIKE if name == "mplug_owl2" else ASKED


def batch(adapter, name: str, pictures) -> dict:
    return adapter.encode(pictures[: len(ASKED)], [adapter.render(template(name), asked) for asked in asked_of(name)])


def conditions(name: str) -> dict:
    settings = {
        **{"family": FAMILIES.get(name, name), "model_id": "tiny", "revision": "r", "remote_code": True},
        "template": {"name": "as_run"} | TEMPLATES[name],
    }
    return {"model": name, "settings": settings, "run": RUN, "study": "mini", "seed": 1, "code": "c"}


def eager_maps(folder, name: str, pictures) -> np.ndarray:
    """All attention of a plain eager run: (layers, batch, positions, positions), mean over heads."""
    adapter = load_adapter(FAMILIES.get(name, name), folder, Precision(attention="eager"))
    inputs = batch(adapter, name, pictures)
    more = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True, "output_attentions": True}
    out = adapter.model.generate(**inputs, **more)
    return torch.stack(out.attentions[0]).mean(2).detach().numpy()


@pytest.mark.parametrize("name", builders.SIZES)
def test_recorded_rows_equal_an_eager_run(adapters, folders, pictures, name):
    adapter = adapters[name]
    inputs = batch(adapter, name, pictures)
    full = eager_maps(folders[name], name, pictures)
    assert full.shape[2] == full.shape[3] == attention.positions(adapter, inputs)[0].shape[1]
    rows, places, columns = measured_signals.wanted_rows(adapter, inputs, asked_of(name), SETTINGS)
    decoder = attention.decoder_of(adapter)
    with attention.recording(decoder, rows) as recorder:
        generation = adapter.generate(inputs, 1)
    maps = recorder.maps().numpy()
    assert maps.shape == (3, len(ASKED), rows.shape[1], full.shape[3])
    expected = np.stack([full[:, number, rows[number]] for number in range(len(ASKED))], axis=1)
    assert np.abs(maps - expected).max() < 1e-5
    assert maps[:, :, 1].sum(axis=2) == pytest.approx(1, abs=1e-5)
    assert decoder.config._attn_implementation == ("eager" if name == "mplug_owl2" else "sdpa")
    # the pass itself is the main run's
    assert (generation.logits - adapter.generate(inputs, 1).logits).abs().max() < 1e-4
    assert [len(found["spatial"]) for found in places] == [1, 0, 1]
    assert all(len(found["noun"]) for found in places)
    assert [len(held) for held in columns] == adapter.image_positions(inputs)


@pytest.mark.parametrize("name", builders.SIZES)
def test_signals_equal_those_of_an_eager_run(adapters, folders, pictures, name):
    adapter = adapters[name]
    inputs = batch(adapter, name, pictures)
    full = eager_maps(folders[name], name, pictures).astype(np.float64)
    ids, image = attention.positions(adapter, inputs)
    found, _ = measured_signals.measure(adapter, inputs, asked_of(name), SETTINGS, subject.baseline_set(adapter)[1])
    for number, start in enumerate(attention.starts(inputs)):
        seen = full[:, number][:, :, image[number].numpy()]
        answer = seen[1, -1]  # 14 to 19 of 32 is the middle one of three layers
        assert found[number]["attention"] == pytest.approx(answer.sum(), abs=1e-5)
        share = answer / answer.sum()
        midpoint = 1 + (share * np.log(share)).sum() / np.log(len(share))
        assert found[number]["midpoint_certainty"] == pytest.approx(midpoint, abs=1e-5)
        first = seen[:, start].mean(0)
        # the first position sees itself alone: nothing of the image, or the image position that it is
        assert np.count_nonzero(first > 1e-9) == int(image[number, start])
        assert found[number]["cls_certainty"] == pytest.approx(1, abs=1e-6)
    words = [adapter.decode([token]).strip() for token in ids[0].clamp(min=0).tolist()]
    place = len(words) - 1 - words[::-1].index("in")
    spatial = full[:, 0, place][:, image[0].numpy()].mean(0)
    expected = min(spatial.mean() / (10 / len(spatial)), 1)
    assert found[0]["magnitude_certainty"] == pytest.approx(expected, abs=1e-5)
    assert found[0]["entropy_certainty"] == pytest.approx(measured_signals.concentration(spatial), abs=1e-5)
    assert found[1]["entropy_certainty"] == found[1]["magnitude_certainty"] == 0


def test_an_eager_kernel_records_the_same_rows(adapters, folders, pictures):
    eager = load_adapter("llava", folders["llava15"], Precision(attention="eager"))
    inputs = batch(eager, "llava15", pictures)
    token_set = subject.baseline_set(eager)[1]
    both = [
        measured_signals.measure(held, inputs, ASKED, SETTINGS, token_set)[0] for held in (eager, adapters["llava15"])
    ]
    for found, expected in zip(*both, strict=True):
        assert found == pytest.approx(expected, abs=1e-4)
    assert attention.decoder_of(eager).config._attn_implementation == "eager"


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_rows_where_heads_share_keys(kernel):
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    mask = torch.full((2, 1, 5, 5), torch.finfo(torch.float32).min).triu(1)
    mask[1, :, :, 0] = torch.finfo(torch.float32).min  # one padded position
    layer = SimpleNamespace(layer_idx=0, num_key_value_groups=2, is_causal=True, training=False)
    recorder = attention.Recorder(torch.tensor([[4, 1], [2, 4]]), kernel)
    output, _ = recorder.attend(layer, query, key, value, mask, scaling=8**-0.5, dropout=0.0)
    expected, weights = eager_attention_forward(layer, query, key, value, mask, scaling=8**-0.5)
    assert (output - expected)[:, 1:].abs().max() < 1e-5
    found = recorder.maps()[0]
    assert (found[0] - weights[0].mean(0)[[4, 1]]).abs().max() < 1e-6
    assert (found[1] - weights[1].mean(0)[[2, 4]]).abs().max() < 1e-6
    # a later pass of one query leaves the rows alone
    recorder.attend(layer, query[:, :, -1:], key, value, mask[:, :, -1:], scaling=8**-0.5)
    assert torch.equal(recorder.maps()[0], found)


def test_the_kernel_is_restored_after_a_failure(adapters):
    decoder = attention.decoder_of(adapters["llava15"])
    with pytest.raises(KeyboardInterrupt), attention.recording(decoder, torch.zeros(1, 1, dtype=torch.long)):
        assert decoder.config._attn_implementation == attention.NAME
        raise KeyboardInterrupt
    assert decoder.config._attn_implementation == "sdpa"


def test_the_released_slice_begins_at_the_second_position(adapters, pictures):
    adapter = adapters["llava15"]
    inputs = batch(adapter, "llava15", pictures)
    columns = measured_signals.wanted_rows(adapter, inputs, ASKED, SETTINGS | {"image_span": "as_run"})[2]
    for held, start in zip(columns, attention.starts(inputs), strict=True):
        assert held == list(range(start + 1, start + 1 + builders.PATCHES))


def test_a_prompt_without_an_image_is_named(adapters, pictures, monkeypatch):
    adapter = adapters["llava15"]
    inputs = batch(adapter, "llava15", pictures)
    monkeypatch.setattr(adapter, "image_positions", lambda _: [9, 0, 9])
    with pytest.raises(BadInput, match="a prompt holds no image position"):
        attention.positions(adapter, inputs)


def test_attention_signals_by_hand():
    # two layers, rows: first, answer, "in", two tokens of the noun; four image positions
    maps = np.zeros((2, 5, 4))
    maps[1, 1] = [0.1, 0.1, 0.2, 0.0]
    maps[:, 2] = [[0.4, 0, 0, 0], [0, 0.4, 0, 0]]
    maps[:, 3:] = 0.05
    places = {"first": [0], "last": [1], "spatial": [2], "noun": [3, 4]}
    found = measured_signals.from_attention(maps, places, [1])
    assert found["attention"] == pytest.approx(0.4)
    entropy = 2 * 0.25 * np.log(4) + 0.5 * np.log(2)
    assert found["midpoint_certainty"] == pytest.approx(1 - entropy / np.log(4))
    assert found["entropy_certainty"] == pytest.approx(0.5)  # two of four equally: log 2 / log 4
    assert found["object_noun_certainty"] == pytest.approx(0, abs=1e-12)
    assert found["magnitude_certainty"] == pytest.approx(0.1 / 2.5)
    assert found["cls_certainty"] == 1
    assert measured_signals.from_attention(maps, places, [0, 1])["attention"] == pytest.approx(0.2)
    without = measured_signals.from_attention(maps, places | {"spatial": [], "noun": []}, [1])
    assert (without["entropy_certainty"], without["magnitude_certainty"], without["object_noun_certainty"]) == (
        0,
        0,
        0.5,
    )
    bare = {"first": [0], "last": [1], "spatial": [2], "noun": []}
    strong = measured_signals.from_attention(np.ones((1, 3, 20)), bare, [0])
    assert strong["magnitude_certainty"] == strong["attention"] == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(1e-3, 1e3))
def test_concentration_is_a_certainty_and_knows_no_scale(weights, factor):
    value = measured_signals.concentration(np.array(weights))
    assert 0 <= value <= 1
    if sum(weights) > 1e-6:
        assert measured_signals.concentration(np.array(weights) * factor) == pytest.approx(value, abs=1e-9)


def test_concentration_of_even_single_and_absent_attention():
    assert measured_signals.concentration(np.full(7, 0.1)) == pytest.approx(0, abs=1e-12)
    assert measured_signals.concentration(np.array([0, 0.2, 0])) == 1
    assert measured_signals.concentration(np.zeros(3)) == measured_signals.concentration(np.array([0.3])) == 1


def test_logit_signals_by_hand():
    scores = torch.full((2, 8), -1e9)
    scores[0, [1, 4]] = 3.0
    scores[1] = 0.5
    found = measured_signals.from_logits(scores, tokens.TokenSet((1, 2), (3, 4)))
    assert found["yes_max"].tolist() == [3, 0.5] and found["no_max"].tolist() == [3, 0.5]
    # two tokens with half each; then all eight alike
    assert found["entropy_certainty_paper"].tolist() == pytest.approx([1 - 1 / 3, 0])
    assert found["magnitude_certainty_paper"].tolist() == pytest.approx([0.5, 0.125])


@pytest.mark.parametrize(
    ("band", "depth", "expected"),
    [
        (SETTINGS["band"], 32, [14, 15, 16, 17, 18, 19]),
        (SETTINGS["band"], 28, [12, 13, 14, 15, 16, 17]),
        (SETTINGS["band"], 2, [1]),
        (SETTINGS["band"], 1, [0]),
        ([0, 2], 3, [0, 2]),
    ],
)
def test_band_layers(band, depth, expected):
    assert attention.band_layers(band, depth) == expected


@pytest.mark.parametrize("band", [[], [3], [-1], {"first": 30, "end": 40, "of": 32}])
def test_a_band_outside_the_decoder_is_named(band):
    with pytest.raises(BadInput, match=r"signals\.band gives layers .* but the decoder has layers 0 to 2"):
        attention.band_layers(band, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llava15", "legacy_8tok"),
        ("instructblip", "legacy_8tok"),
        ("mplug_owl2", "legacy_8tok"),
        ("llava16_mistral", "dynamic_single"),
        ("qwen2_vl", "dynamic_single"),
    ],
)
def test_the_baseline_reads_eight_tokens_of_llamas_vocabulary_only(adapters, name, expected):
    found, token_set = subject.baseline_set(adapters[name])
    assert found == expected
    assert (token_set == tokens.LEGACY_8TOK) == (expected == "legacy_8tok")


def asked_about(pictures) -> tuple[list[Question], Callable[[Question], Image.Image]]:
    rendered = TEMPLATES["llava15"]["text"].replace("{question}", ASKED[0])
    questions = [Question("d", "random", number, f"{number % 2}.png", rendered) for number in range(5)]
    return questions, lambda question: pictures[question.id % 2]


def run_noise(adapter, pictures, kind: str, size: int = 2, seed: int = 4, scale: float = 1.0) -> dict:
    questions, open_image = asked_about(pictures)
    engine = noise.KINDS[kind]
    batches = engine(adapter, questions, open_image, [3869, 1939], size, settings={"seed": seed, "scale": scale})
    return {row["id"]: row for rows in batches for row in rows}


@pytest.mark.parametrize("kind", noise.KINDS)
def test_noise_depends_on_seed_and_key_alone(adapters, pictures, kind):
    adapter = adapters["llava15"]
    found = run_noise(adapter, pictures, kind)
    assert list(found) == [0, 1, 2, 3, 4]
    again = run_noise(adapter, pictures, kind, size=5)
    for number, row in found.items():
        assert row["image"] == f"{number % 2}.png"
        assert row["logit_3869"] == pytest.approx(again[number]["logit_3869"], abs=1e-4)
    other = run_noise(adapter, pictures, kind, seed=5)
    values = [held[number]["logit_3869"] for held in (found, other) for number in range(5)]
    # questions share prompts, and images in pairs, so only the draws tell them apart
    assert np.abs(np.subtract.outer(values, values))[~np.eye(10, dtype=bool)].min() > 1e-4


def test_gaussian_noise_of_no_width_is_the_main_run(adapters, pictures):
    questions, open_image = asked_about(pictures)
    main = [row for rows in engines.reference(adapters["llava15"], questions, open_image, [3869], 5) for row in rows]
    still = run_noise(adapters["llava15"], pictures, "gaussian_embedding", size=5, scale=0.0)
    strong = run_noise(adapters["llava15"], pictures, "gaussian_embedding", size=5, scale=2.0)
    for row in main:
        assert still[row["id"]]["logit_3869"] == pytest.approx(row["logit_3869"], abs=1e-5)
        assert abs(strong[row["id"]]["logit_3869"] - row["logit_3869"]) > 1e-3


@pytest.mark.parametrize("name", builders.SIZES)
def test_gaussian_noise_reaches_every_family(adapters, pictures, name):
    adapter = adapters[name]
    inputs = batch(adapter, name, pictures)
    questions = [Question("d", "random", number, "", "") for number in range(len(ASKED))]
    noisy = noise.NoisyAdapter(adapter, questions, {"seed": 1, "scale": 1.0}).generate(inputs, 2)
    clean = adapter.generate(inputs, 2)
    assert ((noisy.logits - clean.logits).abs().amax(1) > 1e-3).all()
    assert (adapter.generate(inputs, 2).logits - clean.logits).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("name", "size"), [("llava15", 48), ("llava16_mistral", 48), ("instructblip", 48), ("qwen2_vl", 20)]
)
def test_a_random_image_has_the_size_that_the_model_takes(adapters, name, size):
    assert noise.input_size(adapters[name], Image.new("RGB", (20, 20))) == (size, size)


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


STAGE = {"images": 16, "batch": 4, "steps": 2, "rate": 0.003}
CLIPS = {"clip_l": {"tower": "base"} | STAGE, "clip_b": {"tower": "own", "input": 24} | STAGE}


def clip_settings(name: str) -> dict:
    return {"seed": 2, "world": {}, "shape": SHAPE, "clip": CLIPS[name]}


@pytest.fixture(scope="module")
def base_file(root, adapters):
    state = {name: value.clone() for name, value in adapters["llava15"].model.state_dict().items()}
    save_file(state, root / "base.safetensors", metadata={"words": "[]"})
    return root / "base.safetensors"


@pytest.fixture(scope="module")
def clip_folders(root, base_file):
    for name in CLIPS:
        clips.train_clip(name, clip_settings(name), base_file, root / name)
    return {name: root / name for name in CLIPS}


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


def test_an_unknown_noise_is_named(polls, root):
    with pytest.raises(BadInput, match="noise 'grey' is not known: use one of random_image, gaussian_embedding"):
        noise.infer(*polls, "c", "out", kind="grey", noise={"seed": 1, "scale": 1}, run=RUN)


def exhausted(*_given, **_named):
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("x"), RuntimeError("can't allocate memory: you tried 9 bytes")]
)
def test_too_little_memory_names_the_setting_that_helps(error):
    def sentence(**precision):
        with pytest.raises(BadInput) as caught, Precision(**precision).shortage_named("while it slept", "lower x"):
            raise error
        return str(caught.value)

    assert sentence() == (
        "cpu ran out of memory while it slept: lower x, or set run.dtype to float16 or run.quantisation to nf4."
    )
    assert sentence(dtype="float16").endswith(": lower x, or set run.quantisation to nf4.")
    assert "take a larger one" in sentence(dtype="float16", quantisation="nf4")
    with pytest.raises(RuntimeError, match="shapes"), Precision().shortage_named("while it slept"):
        raise RuntimeError("shapes do not fit")


def test_too_little_memory_to_load_a_model(polls, root, folders, monkeypatch, tmp_path):
    monkeypatch.setattr(subject, "load_adapter", exhausted)
    checkpoint = str(root / "llava15/checkpoint.json")
    with pytest.raises(BadInput, match=r"^cpu ran out of memory while llava15 was loaded: set run\.dtype to float16"):
        subject.load(*polls, checkpoint, **conditions("llava15"))


BATCH = (
    r"^cpu ran out of memory with 5 questions at a time: lower run\.batch_size in the configuration .1 is the least."
)


@pytest.mark.parametrize(
    ("module", "name"),
    [(attention, "positions"), (measured_signals, "from_logits"), (measured_signals, "wanted_rows")],
)
def test_too_little_memory_in_the_instrumented_pass(polls, root, folders, tmp_path, monkeypatch, module, name):
    monkeypatch.setattr(module, name, exhausted)
    given = (*polls, str(root / "llava15/checkpoint.json"), str(tmp_path / "0.parquet"))
    with pytest.raises(BadInput, match=BATCH):
        measured_signals.infer(*given, shard=0, signals=SETTINGS, **conditions("llava15"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [
        ("random_image", engines.rows, "stored"),
        ("gaussian_embedding", attention, "positions"),
        ("gaussian_embedding", noise, "draw"),
    ],
)
def test_too_little_memory_in_a_noise_pass(polls, root, folders, tmp_path, monkeypatch, kind, module, name):
    monkeypatch.setattr(module, name, exhausted)
    given = (*polls, str(root / "llava15/checkpoint.json"), str(tmp_path / "0.parquet"))
    with pytest.raises(BadInput, match=BATCH):
        noise.infer(
            *given, kind=kind, noise={"seed": 1, "scale": 1.0}, shard=0, token_sets=TOKEN_SETS, **conditions("llava15")
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "name"), [(clip.CLIPModel, "from_pretrained"), (clip, "crop_cosines"), (clip, "tower_states")]
)
def test_too_little_memory_for_clip(polls, root, clip_folders, tmp_path, monkeypatch, module, name):
    monkeypatch.setattr(module, name, exhausted)
    named = {which: str(clip_folders[f"clip_{which}"] / "checkpoint.json") for which in "bl"}
    given = (*polls, str(root / "llava15/checkpoint.json"), str(tmp_path / "clip.parquet"))
    with pytest.raises(
        BadInput, match=r"^cpu ran out of memory with the audited model and CLIP in it: set signals\.clip"
    ):
        clip.infer(*given, clip=named, pattern="as_run", **conditions("llava15"))
    assert not list(tmp_path.iterdir())


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
