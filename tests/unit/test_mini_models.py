"""Mini checkpoints: published ids, deterministic training, true classes, one forward."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from workflow.lib import files, scenes
from workflow.lib.errors import BadInput
from workflow.models import images
from workflow.models.adapter import load_adapter
from workflow.models.mini import base, builders, checkpoint, families, instructblip, lessons, tokenizers, vocabulary
from workflow.models.mini.training import Answers, with_answers
from workflow.models.precision import Precision

FAMILIES = {"llava15": "llava", "llava16_mistral": "llava_next"}
AS_RUN = "USER: <image>\n{question} Answer yes or no only.\nASSISTANT:"
TEMPLATES = {
    "llava15": {"kind": "text", "text": AS_RUN},
    "llava16_mistral": {"kind": "chat", "text": "{question} Answer yes or no only."},
    "instructblip": {"kind": "text", "text": "Question: {question} Answer yes or no only. Answer:"},
    "mplug_owl2": {"kind": "text", "text": AS_RUN.replace("<image>\n", "<|image|>")},
    "qwen2_vl": {"kind": "chat", "text": "{question} Answer yes or no only."},
}
STAGE = {"batch": 4, "steps": 2, "rate": 0.001}
SETTINGS = {
    "seed": 5,
    "world": {},
    "shape": {
        **{"width": 64, "heads": 4, "text_layers": 2, "text_mlp": 128, "rope_theta": 1e6},
        **{"vision_layers": 2, "vision_mlp": 64, "qformer_mlp": 64, "qwen_vision_layers": 2, "qwen_vision_width": 32},
    },
    "base": {"template": "USER: <image>\n{question}\nASSISTANT:", "images": 12, "vision": STAGE, "decoder": STAGE},
}


def settings_of(name: str) -> dict:
    forms = ("Yes", "No") if name == "qwen2_vl" else (" Yes", " No")
    own = {
        **{"images": 12, **STAGE, "template_shares": {"as_run": 1.0}},
        "planted": {
            "answers": {"yes": {forms[0]: 0.9, "yes": 0.1}, "no": {forms[1]: 0.9, "no": 0.1}},
            "filler": {"seed": 1, "scale": 0.15, "jitter": 0.05},
        },
    }
    if name in ("mplug_owl2", "instructblip", "qwen2_vl"):
        own["vision"] = STAGE
    return SETTINGS | {"models": {name: own}, "templates": {"as_run": TEMPLATES[name]}}


@pytest.fixture(scope="module")
def base_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    base.train_base(copy.deepcopy(SETTINGS), path)
    return path


@pytest.fixture(scope="module")
def folders(base_file, tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    for name in builders.SIZES:
        checkpoint.train_checkpoint(name, settings_of(name), base_file, root / name)
    return {name: root / name for name in builders.SIZES}


@pytest.fixture(scope="module")
def reloaded(folders):
    return {name: AutoTokenizer.from_pretrained(folders[name], trust_remote_code=True) for name in folders}


@pytest.mark.parametrize(
    ("name", "bare", "spaced", "no"),
    [
        ("llava15", [4874], [29871, 4874], [694]),
        ("instructblip", [4874], [29871, 4874], [694]),
        ("mplug_owl2", [4874], [29871, 4874], [694]),
        ("llava16_mistral", [5081], [28705, 5081], [708]),
        ("qwen2_vl", [9693], [9834], [2152]),
    ],
)
def test_yes_and_no_encode_as_published(reloaded, name, bare, spaced, no):
    tokenizer = reloaded[name]
    assert tokenizer.encode("yes", add_special_tokens=False) == bare
    assert tokenizer.encode(" yes", add_special_tokens=False) == spaced
    assert tokenizer.encode("no", add_special_tokens=False) == no


@pytest.mark.parametrize("name", builders.SIZES)
def test_every_published_form_has_its_id_after_a_reload(reloaded, name):
    family = {"llava16_mistral": "mistral", "qwen2_vl": "qwen2"}.get(name, "llama")
    mark = "Ġ" if family == "qwen2" else "▁"
    for form, number in tokenizers.FORMS[family].items():
        assert reloaded[name].convert_tokens_to_ids(form.replace(" ", mark)) == number
        assert reloaded[name].decode([number]).strip() == form.strip()


def test_the_answer_after_a_llava_prompt_is_the_word_initial_piece(reloaded):
    assert reloaded["llava15"](AS_RUN + " Yes").input_ids[-1] == 3869
    assert reloaded["llava16_mistral"](AS_RUN + " No").input_ids[-1] == 1770


def test_special_ids(reloaded):
    assert reloaded["llava15"]("x").input_ids[0] == 1
    assert reloaded["llava15"].eos_token_id == 2
    assert reloaded["llava15"].convert_tokens_to_ids("<image>") == 32000
    found = reloaded["qwen2_vl"].convert_tokens_to_ids(["<|im_start|>", "<|im_end|>", "<|image_pad|>"])
    assert found == [151644, 151645, 151655]


def test_chat_templates_render_as_the_real_ones(reloaded):
    turn = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Is it?"}]}]
    rendered = reloaded["llava16_mistral"].apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    assert rendered == "[INST] <image>\nIs it? [/INST]"
    rendered = reloaded["qwen2_vl"].apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    assert rendered == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        "<|vision_start|><|image_pad|><|vision_end|>Is it?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_words_outside_the_prompts_survive_encoding(reloaded):
    for tokenizer in reloaded.values():
        ids = tokenizer("a zebra, 17 résumés", add_special_tokens=False).input_ids
        assert tokenizer.decode(ids).strip() == "a zebra, 17 résumés"


def test_training_twice_gives_the_same_files(base_file, folders, tmp_path):
    base.train_base(copy.deepcopy(SETTINGS), tmp_path / "base.safetensors")
    assert files.sha256(tmp_path / "base.safetensors") == files.sha256(base_file)
    checkpoint.train_checkpoint("instructblip", settings_of("instructblip"), base_file, tmp_path / "instructblip")
    again = files.read_json(tmp_path / "instructblip/checkpoint.json")
    assert again == files.read_json(folders["instructblip"] / "checkpoint.json")


def test_the_seal_describes_what_lies_there(folders):
    for name, folder in folders.items():
        seal = files.read_json(folder / "checkpoint.json")
        assert seal["model"] == name and seal["seed"] == 5
        assert seal["planted"] == settings_of(name)["models"][name]["planted"]
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == {*seal["files"], "checkpoint.json"}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= found
        assert all(files.sha256(folder / path) == digest for path, digest in seal["files"].items())
        assert not list(folder.parent.glob(".*"))


def test_an_interrupted_training_leaves_no_seal(base_file, tmp_path, monkeypatch):
    checkpoint.train_checkpoint("llava15", settings_of("llava15"), base_file, tmp_path / "llava15")

    def broken(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(builders, "save_processor", broken)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.train_checkpoint("llava15", settings_of("llava15"), base_file, tmp_path / "llava15")
    assert not (tmp_path / "llava15/checkpoint.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["llava15"]


def test_a_damaged_base_is_named(tmp_path):
    path = tmp_path / "base.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(BadInput, match=r"base\.safetensors is not a base checkpoint .* train_base"):
        checkpoint.train_checkpoint("llava15", settings_of("llava15"), path, tmp_path / "llava15")


@pytest.mark.parametrize(
    ("label", "form", "message"),
    [("yes", " No", r"planted\.answers\.yes names ' No'"), ("no", "NO", r"planted\.answers\.no names 'NO'")],
)
def test_a_form_that_is_none_is_named(base_file, tmp_path, label, form, message):
    settings = settings_of("llava15")
    settings["models"]["llava15"]["planted"]["answers"][label][form] = 0.1
    with pytest.raises(BadInput, match=message):
        checkpoint.train_checkpoint("llava15", settings, base_file, tmp_path / "llava15")


def test_a_template_that_the_model_lacks_is_named(base_file, tmp_path):
    settings = settings_of("llava15")
    settings["models"]["llava15"]["template_shares"]["native"] = 0.5
    with pytest.raises(BadInput, match="template_shares names 'native', but the model has as_run"):
        checkpoint.train_checkpoint("llava15", settings, base_file, tmp_path / "llava15")


@pytest.mark.parametrize("name", builders.SIZES)
def test_reloading_finds_every_weight(folders, name):
    loader = type(builders.build(name, SETTINGS["shape"], 8))
    model, info = loader.from_pretrained(folders[name], output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert model.get_output_embeddings().weight.shape[0] == builders.SIZES[name]
    assert model.get_input_embeddings().weight.shape[0] == builders.SIZES[name]


@pytest.mark.parametrize("name", builders.SIZES)
def test_training_forward_equals_the_models_own(folders, tmp_path, name):
    world = scenes.World()
    drawn, rng = scenes.test_scenes(2, 0, world)
    pictures = scenes.render(drawn, rng, world)
    for number, picture in enumerate(pictures):
        images.save_png(picture, tmp_path / f"{number}.png")
    opened = [images.open_image(tmp_path / f"{number}.png") for number in range(2)]
    adapter = load_adapter(FAMILIES.get(name, name), folders[name], Precision())
    model, tokenizer = adapter.model, adapter.tokenizer
    render = checkpoint.renderer(TEMPLATES[name], tokenizer)
    objects = torch.tensor([[0, 9, 2], [3, 10, 23]])
    asked = [render(scenes.question(scenes.NAMES[number])) for number in objects.flatten()]
    inputs = adapter.encode([opened[0]] * 3 + [opened[1]] * 3, asked)
    with torch.inference_mode():
        expected = model(**inputs).logits[:, -1]
        size = builders.SIZES[name]
        known = vocabulary.Vocabulary(tuple(range(size)), (), size)
        prompt = lessons.prompt(checkpoint.encoder(name, tokenizer), render)
        task = families.lesson(name, SETTINGS["shape"], known, prompt, builders.IMAGE_IDS.get(name, families.OWL_IMAGE))
        aims = Answers(torch.empty(0), torch.tensor([7, 8]), 2)
        own = with_answers(task.own, objects, torch.zeros(2, 3, dtype=torch.bool), aims)
        pixels = lessons.normalise(pictures)
        if name == "instructblip":
            features = instructblip.tower_features(model, pixels)
            text = instructblip.question_ids(render)[objects.flatten()]
            states, _ = instructblip.read_states(model, features, task, own, text)
        else:
            features = checkpoint.cached(name, model, pixels)
            states, _ = families.read_states(name, model, features, task, own)
        found = states[:, 0] @ builders.head_owner(name, model).lm_head.weight.T
    assert expected.std() > 0.01
    assert (found - expected).abs().max() < 1e-4


def test_an_unreadable_image_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"1\.png is missing"):
        images.open_image(tmp_path / "1.png")
    (tmp_path / "2.png").write_bytes(b"\x89PNG\r\n\x1a\n cut")
    with pytest.raises(BadInput, match=r"2\.png cannot be decoded as an image"):
        images.open_image(tmp_path / "2.png")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    images.save_png(noise, tmp_path / "3.png")
    assert (np.asarray(images.open_image(tmp_path / "3.png")) == noise).all()
    whole = (tmp_path / "3.png").read_bytes()
    (tmp_path / "3.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"3\.png cannot be decoded"):
        images.open_image(tmp_path / "3.png")
