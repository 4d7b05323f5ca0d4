"""Every family on a tiny checkpoint in the layout of its real repository, under whichever transformers is installed.

Golden logits were made by the current version (``python -m tests.golden_families``); every version must reproduce them.
"""

import importlib
import json
from functools import cache
from importlib import metadata

import pytest
import torch
import transformers
from PIL import Image

from tests import hub_layout
from tests.golden_families import CASES, GOLDEN, REPOSITORY, measured, template_of
from workflow.lib import environments, files, items, logits, parsers
from workflow.lib.errors import BadInput
from workflow.models import adapter as adapters
from workflow.models import shard, signal_jobs
from workflow.models.precision import Precision

# a picture whose tiles in LLaVA-NeXT are padded by an odd number of columns
ODD = CASES[3]
VERSION = metadata.version("transformers")
OLDER = environments.is_older(VERSION)
# the one kernel that the decoder of InstructBLIP has before 5
ONLY = "sdpa" if VERSION.startswith("4.40.") else "eager"
QUESTIONS = ("Is there a lamp in the image?", "Is there a boat in the image?")
RENDERED = {
    ("llava", "as_run"): "USER: <image>\nIs there a lamp in the image? Answer yes or no only.\nASSISTANT:",
    ("llava", "paper"): "USER: <image>\nIs there a lamp in the image?\nASSISTANT:",
    ("llava_next", "as_run"): "USER: <image>\nIs there a lamp in the image? Answer yes or no only.\nASSISTANT:",
    ("llava_next", "paper"): "USER: <image>\nIs there a lamp in the image?\nASSISTANT:",
    ("llava_next", "native"): "[INST] <image>\nIs there a lamp in the image? Answer yes or no only. [/INST]",
    ("instructblip", "as_run"): "Question: Is there a lamp in the image? Answer yes or no only. Answer:",
    ("instructblip", "paper"): "USER: \nIs there a lamp in the image?\nASSISTANT:",
}
QWEN = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    "<|vision_start|><|image_pad|><|vision_end|>Is there a lamp in the image?{}<|im_end|>\n<|im_start|>assistant\n"
)
RENDERED |= {("qwen2_vl", name): QWEN.format(" Answer yes or no only.") for name in ("as_run", "native")}
RENDERED[("qwen2_vl", "paper")] = QWEN.format("")
# an image of 80 x 60 pixels: the tower's patches; the same for the whole image, and 6 rows of 8 patches, each ended by
# one more, that show it in a grid of 2 x 2 tiles of 4 x 4 patches; the queries; 6 x 4 patches, four to a position
POSITIONS = {"llava": 16, "llava_next": 16 + 6 * (8 + 1), "instructblip": 4, "qwen2_vl": 6}


def known(family):
    """Whether the installed transformers has the family."""
    try:
        return bool(environments.adapter_module(family, VERSION))
    except BadInput:
        return False


@pytest.fixture(scope="module", params=filter(known, hub_layout.FAMILIES))
def family(request):
    return request.param


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return cache(lambda family: hub_layout.build(family, tmp_path_factory.mktemp(family)))


def kernel(family):
    """The attention kernel to ask for: sdpa, where there is a choice."""
    return ONLY if OLDER and family == "instructblip" else "sdpa"


@pytest.fixture(scope="module")
def adapter(family, checkpoints):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield adapters.load_adapter(family, checkpoints(family), Precision(attention=kernel(family)))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def asked(adapter, family):
    """Two rendered prompts of unequal length, and an image."""
    template = template_of(family, "as_run")
    rendered = [
        adapter.render(template, question) for question in (QUESTIONS[0], "Is there no lamp in the image or not?")
    ]
    return rendered, hub_layout.picture(1)


def test_all_weights_are_found_and_used(adapter, checkpoints, family):
    _, info = type(adapter).model_class.from_pretrained(checkpoints(family), output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind]


def test_templates_by_name(adapter, family):
    expected = {name: text for (owner, name), text in RENDERED.items() if owner == family}
    assert len(expected) >= 2
    assert {name: adapter.render(template_of(family, name), QUESTIONS[0]) for name in expected} == expected


def test_image_positions(adapter, asked, family):
    prompts_, image = asked
    inputs = adapter.encode([image] * 2, prompts_)
    assert adapter.image_positions(inputs) == [POSITIONS[family]] * 2
    # 150 x 60 pixels: in a grid of 1 x 3 tiles 4 rows of 12 patches less 2 of padding; 10 x 4 patches
    wide = POSITIONS | {"llava_next": 16 + 4 * (10 + 1), "qwen2_vl": 10}
    inputs = adapter.encode([hub_layout.picture(2, 150, 60)], prompts_[:1])
    assert adapter.image_positions(inputs) == [wide[family]]


def test_what_the_decoder_reads_is_the_text_and_the_image_positions(adapter, asked, family):
    prompts_, image = asked
    lengths = []
    decoder = adapter.model.get_decoder() if family != "instructblip" else adapter.model.language_model.get_decoder()

    def note(_module, _arguments, keywords):
        read = keywords.get("inputs_embeds")
        lengths.append((keywords["input_ids"] if read is None else read).shape[1])

    hook = decoder.register_forward_pre_hook(note, with_kwargs=True)
    adapter.generate(adapter.encode([image], prompts_[:1]), 1)
    hook.remove()
    text = adapter.tokenizer(prompts_[0])["input_ids"]
    placeholders = 0 if family == "instructblip" else 1
    assert lengths[0] == len(text) - placeholders + POSITIONS[family]


def test_the_prompt_comes_back_as_the_version_says(adapter, asked, family):
    prompts_, image = asked
    found = adapter.generate(adapter.encode([image], prompts_[:1]), 3)
    assert found.returned_prompt == (family != "instructblip" or not OLDER)
    assert 1 <= len(found.new_ids[0]) <= 3 and found.raw_choice
    assert found.new_ids[0][0] == int(found.logits[0].argmax())
    behind = found.returned_ids[0][-len(found.new_ids[0]) :]
    assert behind == found.new_ids[0]
    text = adapter.decode(found.returned_ids[0])
    assert ("Is there a lamp" in text) == found.returned_prompt


def test_the_all_yes_column_of_instructblip_needs_a_prompt_that_comes_back(checkpoints):
    """A parser of everything returned finds the "yes" of "Answer yes or no only" only where the prompt is returned.

    transformers returns it from 4.47 on. Under 4.40.1, which the paper names, parsing everything gives what parsing new
    tokens gives, so that version and a column that says yes throughout do not fit each other.
    """
    asked = Precision(attention=kernel("instructblip"))
    held = adapters.load_adapter("instructblip", checkpoints("instructblip"), asked)
    prompt = held.render(template_of("instructblip", "as_run"), QUESTIONS[0])
    inputs = held.encode([hub_layout.picture(1)], [prompt])
    no = held.forms("no")[0]
    assert no == 694
    # the answer is made "no" for certain
    held.model.language_model.lm_head.weight.data[no] = 0
    bias = torch.zeros(held.model.language_model.lm_head.out_features)
    bias[no] = 100.0
    held.model.language_model.lm_head.bias = torch.nn.Parameter(bias)
    found = held.generate(inputs, 2)
    assert found.new_ids == [[no, no]]
    parse = parsers.string_parse
    assert parse(held.decode(found.new_ids[0])) == "no"
    assert parse(held.decode(found.returned_ids[0])) == ("no" if OLDER else "yes")


def test_first_logits_are_those_of_a_plain_forward(adapter, asked, family):
    prompts_, image = asked
    inputs = adapter.encode([image], prompts_[:1])
    generated = adapter.generate(inputs, 2).logits[0]
    if family == "qwen2_vl" and OLDER:
        # there the model itself counts positions one by one, and only generate works them out
        known = {name: inputs[name] for name in ("input_ids", "image_grid_thw", "attention_mask")}
        inputs["position_ids"], _ = adapter.model.get_rope_index(**known)
    with torch.inference_mode():
        plain = adapter.model(**inputs).logits[0, -1].float()
    assert (generated - plain).abs().max() < 1e-4


def test_a_batch_of_unequal_prompts_is_each_alone(adapter, asked, family):
    prompts_, image = asked
    images = [image, hub_layout.picture(2)]
    together = adapter.generate(adapter.encode(images, prompts_), 3)
    for row, (one, prompt) in enumerate(zip(images, prompts_, strict=True)):
        alone = adapter.generate(adapter.encode([one], [prompt]), 3)
        assert (together.logits[row] - alone.logits[0]).abs().max() < 1e-4
        assert together.new_ids[row] == alone.new_ids[0]
        assert together.returned_ids[row] == alone.returned_ids[0]
        assert together.image_tokens[row] == alone.image_tokens[0]


def test_the_image_moves_the_answer(adapter, asked):
    prompts_, image = asked
    black = Image.new("RGB", image.size)
    logits = [adapter.generate(adapter.encode([one], prompts_[:1]), 1).logits for one in (image, black)]
    assert (logits[0] - logits[1]).abs().max() > 0.1


def test_logits_are_those_of_the_current_version(adapter, family):
    golden = files.read_json(REPOSITORY / GOLDEN)[family]
    cases = {f"{case[0]}-{case[1]}": case for case in CASES}
    assert golden.keys() <= cases.keys() and len(golden) >= 3
    for name, expected in golden.items():
        found = measured(adapter, family, cases[name])
        for field in ("prompt_sha256", "text_ids", "image_tokens", "new_ids"):
            assert found[field] == expected[field], (name, field)
        if OLDER and (family, cases[name]) == ("llava_next", ODD):
            apart = max(abs(a - b) for a, b in zip(found["logits"], expected["logits"], strict=True))
            assert apart > 0.01  # see the test below
            continue
        for field in ("logits", "logsumexp"):
            assert found[field] == pytest.approx(expected[field], abs=1e-4), (name, field)


def test_tiles_of_llava_next_with_odd_padding_were_stretched_before_5(checkpoints):
    """A white image of 200 x 300 pixels becomes 75 x 112 in a grid 112 wide, with 37 columns of padding.

    Version 5 puts 18 in front and 19 behind. Older ones put 18 on both sides, so that the last column of tiles is 55
    wide and is stretched to 56, content and padding. Common sizes have this: of an image of 640 x 427 in the real
    grid 672 - 449 = 223 rows are padding.
    """
    held = adapters.load_adapter("llava_next", checkpoints("llava_next"), Precision())
    prompt = held.render(template_of("llava_next", "as_run"), QUESTIONS[0])
    tiles = held.encode([Image.new("RGB", (200, 300), "white")], [prompt])["pixel_values"][0]
    black, white = ((value - hub_layout.CLIP_MEAN[0]) / hub_layout.CLIP_STD[0] for value in (0, 1))
    # the whole image, two tiles above, two below
    left, right = tiles[1, 0, 28], tiles[2, 0, 28]
    assert left.tolist() == pytest.approx([black] * 18 + [white] * 38, abs=1e-4)
    even = right.tolist() == pytest.approx([white] * 37 + [black] * 19, abs=1e-4)
    assert even != OLDER
    assert (right < 0).sum() == (18 if OLDER else 19)


@pytest.fixture
def study(tmp_path):
    """Two questions about one image, as items and a table of images."""
    (tmp_path / "images").mkdir()
    hub_layout.picture(1).save(tmp_path / "images/one.png")
    files.write_text(f"image,sha256\none.png,{files.sha256(tmp_path / 'images/one.png')}\n", tmp_path / "images.csv")
    lines = [
        {"question_id": number, "image": "one.png", "text": question, "label": label}
        for number, question, label in zip((1, 2), QUESTIONS, ("yes", "no"), strict=True)
    ]
    files.write_text("".join(json.dumps(line) + "\n" for line in lines), tmp_path / "polls.json")
    table = items.read_polls(tmp_path / "polls.json", "tiny", "random", items.Expected(2, 2))
    origin = {"dataset": "tiny", "revision": "none", "split": "random", "sha256": ""}
    items.save(table, tmp_path / "items.parquet", origin)
    return tmp_path


def infer(study, checkpoint, family, **changes):
    run = {"shards": 1, "engine": "reference", "batch_size": 1, "device": "cpu", "dtype": "float32", "threads": 1}
    template = template_of(family, "as_run")
    shard.infer(
        str(study / "items.parquet"),
        str(study / "images.csv"),
        str(checkpoint / "checkpoint.json"),
        str(study / "shard.parquet"),
        shard=0,
        model=family,
        settings={
            "family": family,
            "model_id": "tiny",
            "revision": "none",
            "remote_code": False,
            "template": {"name": "as_run", "kind": template.kind, "text": template.text},
        },
        run=run | {"quantisation": "none", "attention": kernel(family)} | changes.pop("run", {}),
        token_sets={"llama": {"yes": [3582, 8241], "no": [1217, 3782]}},
        study="test",
        seed=42,
        code="none",
        **changes,
    )
    return logits.read(study / "shard.parquet")


def test_a_shard_names_the_libraries_that_made_it(study, checkpoints, family):
    folder = checkpoints(family)
    held = {path.name: files.sha256(path) for path in folder.iterdir() if path.is_file() and "point" not in path.name}
    files.write_json({"files": held}, folder / "checkpoint.json")
    found = infer(study, folder, family, environment={"name": "any", "transformers": VERSION})
    libraries = found.identity["libraries"]
    assert libraries["transformers"] == VERSION
    assert {"torch", "tokenizers", "pillow", "numpy"} < set(libraries)
    assert found.identity["tokenizer"] == files.sha256(folder / "tokenizer.json")
    rows = found.table.to_pylist()
    assert [row["id"] for row in rows] == [1, 2]
    assert [row["image_tokens"] for row in rows] == [POSITIONS[family]] * 2
    golden = files.read_json(REPOSITORY / GOLDEN)[family]["as_run-1"]
    assert rows[0]["generated_ids"][:4] == golden["new_ids"]
    assert rows[0]["logsumexp"] == pytest.approx(golden["logsumexp"], abs=1e-4)


def test_another_environment_is_refused_before_anything_is_loaded(study, tmp_path):
    wanted = {"name": "transformers-9.9.9", "transformers": "9.9.9"}
    with pytest.raises(BadInput, match=r"transformers 9\.9\.9, but transformers \d+.* is installed here"):
        infer(study, tmp_path / "absent", "llava", environment=wanted)


def test_forms_of_the_answer_words(adapter, family):
    """ " yes" has its space as a piece of its own, but for InstructBLIP in version 5.

    That builds the tokenizer anew from its vocabulary. Ids of single tokens, of which dynamic sets are made, are equal.
    """
    space = {"llava": [29871], "llava_next": [28705], "instructblip": [29871] if OLDER else []}
    word = {"llava": 4874, "llava_next": 5081, "instructblip": 4874, "qwen2_vl": 9834}[family]
    assert adapter.forms(" yes") == [*space.get(family, []), word]
    assert adapter.forms("yes") == [9693 if family == "qwen2_vl" else word]


def test_number_types(checkpoints, family, asked):
    held = adapters.load_adapter(family, checkpoints(family), Precision("bfloat16", attention=kernel(family)))
    assert held.model.dtype is torch.bfloat16
    prompts_, image = asked
    assert held.generate(held.encode([image], prompts_[:1]), 1).logits.dtype is torch.float32


def test_nf4_takes_all_but_the_output_layer_as_transformers_does_where_nothing_is_named(
    checkpoints, family, monkeypatch
):
    """The released code named no layer to leave out, so the default of each version is what ran."""
    bitsandbytes = pytest.importorskip("bitsandbytes")
    kind = adapters.family_class(family)
    plain = kind.model_class.from_pretrained(checkpoints(family))
    linear = {name for name, part in plain.named_modules() if type(part) is torch.nn.Linear}
    replacing = importlib.import_module(
        "transformers.integrations.bitsandbytes" if OLDER else "transformers.quantizers.base"
    )
    if OLDER:
        # these versions quantise where there is a CUDA device only; the choice of modules is a step of its own
        names = {"bnb": bitsandbytes, "nn": torch.nn, "Conv1D": transformers.pytorch_utils.Conv1D}
        accelerate = importlib.import_module("accelerate")
        names["init_empty_weights"] = accelerate.init_empty_weights
        names["find_tied_parameters"] = importlib.import_module("accelerate.utils").find_tied_parameters
        for name, value in names.items():
            monkeypatch.setattr(replacing, name, value, raising=False)
    by_default = replacing.get_keys_to_not_convert(plain)
    assert len(by_default) == 1 and by_default[0] in linear and by_default[0].endswith("lm_head")
    if OLDER:
        model = kind.model_class.from_pretrained(checkpoints(family))
        settings = Precision(quantisation="nf4").load_arguments()["quantization_config"]
        skipped = list(settings.llm_int8_skip_modules)
        replacing.replace_with_bnb_linear(model, modules_to_not_convert=skipped, quantization_config=settings)
    else:
        model = adapters.load_adapter(family, checkpoints(family), Precision(quantisation="nf4")).model
    names = {name for name, part in model.named_modules() if isinstance(part, bitsandbytes.nn.Linear4bit)}
    assert names == linear - set(by_default)


@pytest.mark.skipif(not OLDER, reason="transformers 5 reads both")
def test_a_checkpoint_that_transformers_5_wrote_is_refused(tmp_path):
    files.write_json({"transformers_version": "5.24.0"}, tmp_path / "config.json")
    with pytest.raises(BadInput, match=r"was written by transformers 5\.24\.0, and 4\."):
        adapters.load_adapter("llava", tmp_path, Precision())


@pytest.mark.skipif(not OLDER, reason="about versions before 5")
def test_what_older_versions_cannot_do_is_refused_in_a_sentence(checkpoints, tmp_path):
    with pytest.raises(BadInput, match="quantises on CUDA devices only"):
        Precision(quantisation="nf4").check()
    with pytest.raises(BadInput, match=f"decoder of InstructBlipForConditionalGeneration was loaded with {ONLY}: set"):
        other = {"sdpa": "eager", "eager": "sdpa"}[ONLY]
        adapters.load_adapter("instructblip", checkpoints("instructblip"), Precision(attention=other))
    held = adapters.load_adapter("llava", checkpoints("llava"), Precision(attention="eager"))
    shared = r"shared_prefix .* needs transformers 5 or later"
    with pytest.raises(BadInput, match=shared):
        held.open(hub_layout.picture(1), ["a"])
    with pytest.raises(BadInput, match=shared):
        infer(tmp_path, tmp_path, "llava", run={"engine": "shared_prefix"})
    for job in (signal_jobs.infer_signals, signal_jobs.infer_clip, signal_jobs.infer_noise):
        with pytest.raises(BadInput, match="needs transformers 5 or later"):
            job()
