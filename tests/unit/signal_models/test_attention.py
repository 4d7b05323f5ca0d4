"""The instrumented pass on tiny random checkpoints of the true classes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import eager_attention_forward

from workflow.lib import tokens
from workflow.lib.errors import BadInput
from workflow.models import attention, subject
from workflow.models import signals as measured_signals
from workflow.models.adapter import load_adapter
from workflow.models.mini import builders
from workflow.models.precision import Precision

from .subjects import ASKED, SETTINGS, asked_of, batch, eager_maps


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
