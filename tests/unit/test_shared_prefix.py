"""Both engines give the same rows: untrained checkpoints of all five families, whose answers run to six tokens."""

import copy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from workflow.lib import logits, scenes
from workflow.lib.errors import BadInput
from workflow.lib.prompts import Template
from workflow.models import engines, images, shared_prefix
from workflow.models.adapter import load_adapter
from workflow.models.mini import builders, tokenizers
from workflow.models.opening import common_length
from workflow.models.precision import Precision

CONFIG = yaml.safe_load((Path(__file__).parents[2] / "config.yaml").read_text(encoding="utf-8"))
SHAPE = {
    **{"width": 64, "heads": 4, "text_layers": 2, "text_mlp": 128, "rope_theta": 1e6},
    **{"vision_layers": 2, "vision_mlp": 64, "qformer_mlp": 64, "qwen_vision_layers": 2, "qwen_vision_width": 32},
}
TOLERANCE = 1e-4
# objects the tokenizers know are one token, others several, so prompts about one image differ in length
ASKED = [*([0, name] for name in ("car", "cup", "zebra crossing", "umbrella", "dog", "cow")), [1, "oven"]]
ASKED += [[2, name] for name in ("traffic light", "apple", "duck")]
FORMS = [3582, 1217, 3869, 1939, 5081, 708, 9454, 2753]
# native and as_run are one text for Qwen2-VL
CASES = [
    (name, template)
    for name, entry in CONFIG["models"].items()
    for template, text in entry["templates"].items()
    if template == "as_run" or text != entry["templates"]["as_run"]
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    for number, name in enumerate(builders.SIZES):
        torch.manual_seed(number)
        model = builders.build(name, SHAPE, builders.SIZES[name])
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.2)
        torch.nn.init.normal_(builders.head_owner(name, model).lm_head.weight, std=0.3)
        builders.set_special_ids(name, model)
        model.save_pretrained(root / name)
        builders.save_processor(name, tokenizers.for_model(name), root / name)
    return root


@pytest.fixture(scope="module")
def loaded(folders):
    return {
        name: load_adapter(CONFIG["models"][name]["family"], folders / name, Precision()) for name in builders.SIZES
    }


@pytest.fixture
def adapter_of(loaded):
    """Adapters that a test may change."""
    return lambda name: copy.copy(loaded[name])


@pytest.fixture(scope="module")
def open_image(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    world = scenes.World()
    drawn, rng = scenes.test_scenes(3, 0, world)
    for number, picture in enumerate(scenes.render(drawn, rng, world)):
        images.save_png(picture, folder / f"{number}.png")
    return lambda question: images.open_image(folder / f"{question.image}.png")


def polled(adapter, name, template):
    text = CONFIG["prompts"][CONFIG["models"][name]["templates"][template]]
    made = Template(name=template, **text)
    return [
        engines.Question("pope", "random", i, str(image), adapter.render(made, f"Is there a {asked} in the image?"))
        for i, (image, asked) in enumerate(ASKED)
    ]


def answered(engine, adapter, questions, open_image, batch_size):
    # ranks are compared exactly, so candidates stand where logits are sparse
    batches = engines.ENGINES[engine](adapter, questions, open_image, FORMS, batch_size)
    return sorted((row for batch in batches for row in batch), key=lambda row: row["id"])


def assert_equal_rows(found, expected):
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for column in ours.keys() - {"seconds", "top_ids"}:
            if column.startswith(("logit_", "top_logits")) or column == "logsumexp":
                assert np.abs(np.subtract(ours[column], theirs[column])).max() < TOLERANCE, column
            elif column.startswith("rank_"):
                # among 152,064 logits, neighbours may be closer than rounding
                assert abs(int(ours[column]) - int(theirs[column])) <= 3, column
            else:
                assert ours[column] == theirs[column], column
        top = dict(zip(theirs["top_ids"].tolist(), theirs["top_logits"].tolist(), strict=True))
        for token, value in zip(ours["top_ids"].tolist(), ours["top_logits"].tolist(), strict=True):
            assert abs(top.get(token, theirs["top_logits"][-1]) - value) < TOLERANCE


@pytest.mark.parametrize(("name", "template"), CASES)
def test_rows_are_those_of_the_reference(adapter_of, open_image, name, template):
    adapter = adapter_of(name)
    questions = polled(adapter, name, template)
    assert len({len(adapter.tokenizer(question.prompt).input_ids) for question in questions[:6]}) > 2
    expected = answered("reference", adapter, questions, open_image, 1)
    # the check would be weak if all questions had one answer, or answers ended at once
    assert len({tuple(row["generated_ids"]) for row in expected}) > 5
    assert max(len(row["generated_ids"]) for row in expected) == logits.GENERATED
    for batch_size in (6, 4):
        assert_equal_rows(answered("shared_prefix", adapter, questions, open_image, batch_size), expected)


@pytest.mark.parametrize("name", builders.SIZES)
def test_answers_that_end_at_different_tokens(adapter_of, open_image, monkeypatch, name):
    adapter = adapter_of(name)
    questions = polled(adapter, name, "as_run")
    whole = [row["generated_ids"] for row in answered("reference", adapter, questions, open_image, 1)]
    # the tokens that fewest questions emit, so that some questions of an image go on where others have ended
    counted = Counter(token for ids in whole for token in set(ids))
    ends = [*(min(whole[i], key=counted.get) for i in (1, 3)), whole[7][1]]
    owners = [adapter.model, adapter.model.language_model] if name == "instructblip" else [adapter.model]
    for owner in owners:
        monkeypatch.setattr(owner.generation_config, "eos_token_id", ends)
    expected = answered("reference", adapter, questions, open_image, 1)
    assert len({len(row["generated_ids"]) for row in expected}) > 2
    for batch_size in (6, 2):
        assert_equal_rows(answered("shared_prefix", adapter, questions, open_image, batch_size), expected)


def test_a_repeated_cache_gives_the_same_as_one_sequence(adapter_of, open_image):
    adapter = adapter_of("llava15")
    questions = polled(adapter, "llava15", "as_run")
    packed = answered("shared_prefix", adapter, questions, open_image, 6)
    adapter.packs = False
    assert_equal_rows(answered("shared_prefix", adapter, questions, open_image, 6), packed)


@pytest.mark.parametrize("name", ["llava15", "instructblip", "qwen2_vl"])
def test_eager_attention(folders, open_image, name):
    adapter = load_adapter(CONFIG["models"][name]["family"], folders / name, Precision(attention="eager"))
    questions = polled(adapter, name, "as_run")
    expected = answered("reference", adapter, questions, open_image, 1)
    assert_equal_rows(answered("shared_prefix", adapter, questions, open_image, 6), expected)


@pytest.mark.parametrize("name", builders.SIZES)
def test_every_image_is_seen_once(adapter_of, open_image, name):
    adapter = adapter_of(name)
    tower = {
        "instructblip": lambda model: model.vision_model,
        "mplug_owl2": lambda model: model.model.vision_model.encoder.layers[0],
        "qwen2_vl": lambda model: model.model.visual,
    }.get(name, lambda model: model.model.vision_tower)(adapter.model)
    seen = []
    hook = tower.register_forward_pre_hook(lambda *_: seen.append(1))
    try:
        answered("shared_prefix", adapter, polled(adapter, name, "as_run"), open_image, 4)
    finally:
        hook.remove()
    # once more for the question that tells what generate returns
    assert len(seen) == 3 + 1


@pytest.mark.parametrize("name", builders.SIZES)
def test_the_common_part_ends_within_the_question(adapter_of, open_image, name):
    adapter = adapter_of(name)
    asked = polled(adapter, name, "as_run")[:6]
    prompts, first = [question.prompt for question in asked], open_image(asked[0])
    opening = adapter.open(first, prompts)
    assert opening.cache.get_seq_length() == opening.shared
    if name == "instructblip":
        assert opening.shared == 0
    else:
        assert opening.image_tokens < opening.shared
        assert {len(rest) for rest in opening.rests} != {len(opening.rests[0])}
        assert all(opening.prompt_ids[i][-len(rest) :] == rest.tolist() for i, rest in enumerate(opening.rests))
    # one question alone leaves its last token, from which logits come
    assert len(adapter.open(first, prompts[:1]).rests[0]) == (1 if opening.shared else len(opening.rests[0]))


@pytest.mark.parametrize("name", ["llava15", "instructblip", "mplug_owl2", "qwen2_vl"])
def test_a_batch_of_the_reference_reads_questions_as_alone(adapter_of, open_image, name):
    adapter = adapter_of(name)
    questions = polled(adapter, name, "as_run")
    expected = answered("reference", adapter, questions, open_image, 1)
    assert_equal_rows(answered("reference", adapter, questions, open_image, 10), expected)


def test_generation_settings_that_change_the_choice_are_refused(adapter_of, open_image, monkeypatch):
    adapter = adapter_of("llava15")
    monkeypatch.setattr(adapter.model.generation_config, "repetition_penalty", 1.2)
    with pytest.raises(BadInput, match=r"repetition penalty.*set run\.engine to reference"):
        answered("shared_prefix", adapter, polled(adapter, "llava15", "as_run"), open_image, 6)


def test_too_little_memory_is_named(adapter_of, open_image, monkeypatch):
    adapter = adapter_of("llava15")
    questions = polled(adapter, "llava15", "as_run")

    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(adapter, "open", full, raising=False)
    with pytest.raises(BadInput, match=r"cpu ran out of memory with 4 questions at a time: lower run\.batch_size"):
        answered("shared_prefix", adapter, questions, open_image, 4)


def test_the_layout_is_found_once_a_shard(adapter_of, open_image, monkeypatch):
    adapter = adapter_of("mplug_owl2")
    calls = []
    whole = shared_prefix.layout
    monkeypatch.setattr(shared_prefix, "layout", lambda *given: calls.append(1) or whole(*given))
    rows = answered("shared_prefix", adapter, polled(adapter, "mplug_owl2", "as_run"), open_image, 6)
    assert len(calls) == 1 and len(rows) == len(ASKED)


def test_no_questions_give_no_rows(adapter_of, open_image):
    assert answered("shared_prefix", adapter_of("llava15"), [], open_image, 6) == []


@pytest.mark.parametrize(
    ("prompts", "image_ends", "shared"),
    [
        ([[1, 9, 9, 4, 5], [1, 9, 9, 4, 6, 7]], 3, 4),
        ([[1, 9, 9, 4], [1, 9, 9, 4, 5]], 3, 3),
        ([[1, 9, 9, 4, 5]], 3, 4),
        ([[1, 9, 9, 4, 5], [1, 9, 9, 8, 5]], 3, 3),
    ],
)
def test_common_length(prompts, image_ends, shared):
    assert common_length(prompts, image_ends) == shared


@pytest.mark.parametrize("prompts", [[[1, 2, 9, 4], [1, 3, 9, 4]], [[1, 2, 9]]])
def test_prompts_that_part_before_the_image_are_refused(prompts):
    with pytest.raises(BadInput, match=r"part before the image.*run\.engine to reference"):
        common_length(prompts, 3)
