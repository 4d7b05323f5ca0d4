"""The adapter of mPLUG-Owl2 on a tiny checkpoint whose code has the interface of the authors' package."""

import inspect
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from workflow.lib import logits, scenes
from workflow.lib.errors import BadInput
from workflow.models import engines, mplug_owl2, own_code
from workflow.models.adapter import load_adapter
from workflow.models.mini import builders, tokenizers
from workflow.models.precision import Precision

SHAPE = {
    **{"width": 64, "heads": 4, "text_layers": 2, "text_mlp": 64, "rope_theta": 1e4},
    **{"vision_layers": 2, "vision_mlp": 64},
}
PROMPT = "USER: <|image|>Is there a {} in the image?\nASSISTANT:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    place = tmp_path_factory.mktemp("owl")
    model = builders.build("mplug_owl2", SHAPE, builders.SIZES["mplug_owl2"])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    builders.set_special_ids("mplug_owl2", model)
    model.save_pretrained(place)
    builders.save_processor("mplug_owl2", tokenizers.for_model("mplug_owl2"), place)
    return place


@pytest.fixture(scope="module")
def adapter(folder):
    return load_adapter("mplug_owl2", folder, Precision())


@pytest.fixture(scope="module")
def pictures():
    return [Image.fromarray(array) for array in scenes.render(scenes.test_scenes(2, 0, scenes.World())[0], RNG)]


RNG = np.random.default_rng(0)


def test_the_code_takes_what_the_authors_code_takes(adapter):
    taken = list(inspect.signature(adapter.model.forward).parameters)
    assert taken == [
        *("input_ids", "attention_mask", "past_key_values", "inputs_embeds", "labels", "use_cache"),
        *("output_attentions", "output_hidden_states", "images", "return_dict"),
    ]
    assert type(adapter.model).__module__.startswith("mplug_owl2.")


def test_the_image_stands_where_its_placeholder_stood(adapter):
    begin, image = adapter.tokenizer.bos_token_id, mplug_owl2.IMAGE_TOKEN
    text, rest = "USER: ", "Is there a car in the image?"
    plain = adapter.tokenizer.encode(rest, add_special_tokens=False)
    assert adapter.prompt_ids([text + "<|image|>" + rest])[0] == [*adapter.tokenizer.encode(text), image, *plain]
    # nothing but the image in front: the begin token follows it, as the authors' function has it
    assert adapter.prompt_ids(["<|image|>" + rest])[0] == [image, begin, *plain]
    assert adapter.prompt_ids([text + "<|image|>" + rest])[0].count(begin) == 1


def test_image_positions_are_counted_by_the_model(folder, adapter, monkeypatch):
    count = builders.PATCHES
    inputs = {"input_ids": torch.zeros(2, 3)}
    assert adapter.image_positions(inputs) == [count, count]
    # the authors' code puts one mark behind the queries, of which its configuration says nothing
    kind = type(adapter.model)
    usual = kind.encode_images
    monkeypatch.setattr(kind, "encode_images", lambda self, images: torch.cat([usual(self, images)] * 2, dim=1)[:, :-1])
    assert load_adapter("mplug_owl2", folder, Precision()).image_positions(inputs) == [2 * count - 1] * 2


def test_generate_returns_the_prompt_with_its_placeholder_and_the_raw_logits(adapter, pictures):
    inputs = adapter.encode(pictures[:1], [PROMPT.format("car")])
    found = adapter.generate(inputs, 3)
    assert found.returned_prompt and found.raw_choice
    assert found.returned_ids[0] == [*inputs["input_ids"][0].tolist(), *found.new_ids[0]]
    assert mplug_owl2.IMAGE_TOKEN in found.returned_ids[0]
    with torch.inference_mode():
        expected = adapter.model(input_ids=inputs["input_ids"], images=inputs["images"]).logits[0, -1]
    assert torch.equal(found.logits[0], expected) and expected.std() > 0.1
    assert adapter.decode(found.returned_ids[0]).startswith("USER:  Is there a car in the image?\nASSISTANT:")


def test_a_penalty_is_noticed_and_leaves_the_raw_logits_raw(adapter, pictures, monkeypatch):
    inputs = adapter.encode(pictures[:1], [PROMPT.format("car")])
    usual = adapter.generate(inputs, 2)
    monkeypatch.setattr(adapter.model.generation_config, "bad_words_ids", [[usual.new_ids[0][0]]])
    found = adapter.generate(inputs, 2)
    assert not found.raw_choice and found.new_ids[0][0] != usual.new_ids[0][0]
    assert torch.equal(found.logits, usual.logits)


def test_images_are_stretched_to_squares(adapter, pictures):
    wide = pictures[0].resize((96, 48))
    assert torch.equal(adapter.pixels([wide]), adapter.pixels([wide.resize((96, 96))]))
    cropped = adapter.image_processor(images=[wide], return_tensors="pt")["pixel_values"]
    assert (adapter.pixels([wide]) - cropped).abs().max() > 0.1
    assert torch.equal(
        adapter.pixels(pictures[:1]), adapter.image_processor(images=pictures[:1], return_tensors="pt")["pixel_values"]
    )


def test_padded_prompts_would_be_read_wrongly_and_are_refused(adapter, pictures):
    prompts = [PROMPT.format("car"), PROMPT.format("zebra crossing")]
    with pytest.raises(ValueError, match="misplaces padding"):
        adapter.encode(pictures, prompts)
    short, long = adapter.prompt_ids(prompts)
    width = len(long) - len(short)
    padded = {
        "input_ids": torch.tensor([[0] * width + short, long]),
        "attention_mask": torch.tensor([[0] * width + [1] * len(short), [1] * len(long)]),
        "images": adapter.pixels(pictures),
    }
    alone = [adapter.generate(adapter.encode([pictures[i]], [prompts[i]]), 1).logits for i in (0, 1)]
    found = adapter.generate(padded, 1).logits
    assert (found[0] - alone[0]).abs().max() > 0.1
    assert (found[1] - alone[1]).abs().max() < 1e-4


@pytest.mark.parametrize("engine", ["reference", "shared_prefix"])
def test_any_batch_size_gives_the_rows_of_single_questions(adapter, pictures, engine):
    asked = ("car", "zebra crossing", "umbrella", "traffic light")
    questions = [engines.Question("d", "random", i, "0", PROMPT.format(name)) for i, name in enumerate(asked)]
    prompts = [question.prompt for question in questions]
    lengths = [len(ids) for ids in adapter.prompt_ids(prompts)]
    assert len(set(lengths)) > 1
    for size in (1, 2, 4):
        batches = adapter.batches(prompts, size)
        assert sorted(place for places in batches for place in places) == list(range(len(prompts)))
        assert all(len(places) <= size and len({lengths[place] for place in places}) == 1 for places in batches)

    def rows(name, size):
        batches = engines.ENGINES[name](adapter, questions, lambda _: pictures[0], [3869, 1939], size)
        return sorted((row for batch in batches for row in batch), key=lambda row: row["id"])

    for one, other in zip(rows("reference", 1), rows(engine, 4), strict=True):
        assert one["id"] == other["id"] and one["generated_ids"] == other["generated_ids"]
        assert len(one["generated_ids"]) <= logits.GENERATED
        assert np.abs(one["top_logits"] - other["top_logits"]).max() < 1e-4


def test_the_package_is_that_of_the_checkpoint(folder, adapter, tmp_path):
    copy = tmp_path / "other"
    shutil.copytree(folder, copy)
    init = copy / "code/mplug_owl2/__init__.py"
    init.write_text(init.read_text() + "\nMARK = 1\n")
    first = own_code.load(folder / "code", "mplug_owl2")
    second = own_code.load(copy / "code", "mplug_owl2")
    assert second.MARK == 1 and not hasattr(first, "MARK")
    assert own_code.load(copy / "code", "mplug_owl2") is second
    assert str(copy / "code") not in sys.path
    # the folder holds declared files only
    assert not list(copy.rglob("__pycache__"))


def test_a_checkpoint_without_its_code_is_named(folder, tmp_path):
    copy = tmp_path / "bare"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("code"))
    with pytest.raises(BadInput, match=r"code/mplug_owl2 is missing: fetch .* with remote_code: true"):
        load_adapter("mplug_owl2", copy, Precision())
