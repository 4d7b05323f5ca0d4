"""Number types and NF4: what is asked is what is loaded, and what is loaded is recorded."""

import importlib
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from workflow.lib import logits
from workflow.lib.errors import BadInput
from workflow.lib.prompts import Template
from workflow.models import engines, loaded, nf4
from workflow.models.adapter import load_adapter
from workflow.models.mini import builders, tokenizers
from workflow.models.mini.base import spread
from workflow.models.precision import Precision

SHAPE = {
    **{"width": 64, "heads": 4, "text_layers": 2, "text_mlp": 128, "rope_theta": 1e6},
    # 32 is no multiple of a block of 64 weights
    **{"vision_layers": 2, "vision_mlp": 64, "qformer_mlp": 64, "qwen_vision_layers": 2, "qwen_vision_width": 32},
}
FAMILIES = {
    "llava15": "llava",
    "llava16_mistral": "llava_next",
    "instructblip": "instructblip",
    "mplug_owl2": "mplug_owl2",
    "qwen2_vl": "qwen2_vl",
}
TEMPLATES = {
    "llava15": Template("as_run", "text", "USER: <image>\n{question} Answer yes or no only.\nASSISTANT:"),
    "llava16_mistral": Template("as_run", "text", "USER: <image>\n{question} Answer yes or no only.\nASSISTANT:"),
    "instructblip": Template("as_run", "text", "Question: {question} Answer yes or no only. Answer:"),
    "mplug_owl2": Template("as_run", "text", "USER: <|image|>{question} Answer yes or no only.\nASSISTANT:"),
    "qwen2_vl": Template("as_run", "chat", "{question} Answer yes or no only."),
}
QUESTIONS = ("Is there a dog in the image?", "Is there an apple in the image?")
NF4 = Precision("float32", "nf4")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Random checkpoints of the five architectures, laid out as the mini study's."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("random")
    for name, size in builders.SIZES.items():
        torch.manual_seed(1)
        model = builders.build(name, SHAPE, size)
        spread(model, 0.1)
        builders.set_special_ids(name, model)
        model.save_pretrained(root / name)
        builders.save_processor(name, tokenizers.for_model(name), root / name)
    return {name: root / name for name in builders.SIZES}


@pytest.fixture(scope="module")
def adapter_of(folders):
    """Return a function that loads a checkpoint once a precision; who changes a model loads one of his own."""
    kept = {}

    def load(name, precision):
        if (name, precision) not in kept:
            kept[name, precision] = load_adapter(FAMILIES[name], folders[name], precision)
        return kept[name, precision]

    return load


def picture():
    side = builders.SIZE
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))


def first_logits(name, adapter):
    prompts = [adapter.render(TEMPLATES[name], question) for question in QUESTIONS]
    return torch.cat([adapter.generate(adapter.encode([picture()], [prompt]), 1).logits for prompt in prompts])


# ---- NF4 ----


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llava15", 2 * 7 + 2 * 6 + 2),  # decoder layers, tower layers, projector
        ("llava16_mistral", 2 * 7 + 2 * 6 + 2),
        # one tower layer; two Q-Former layers, one of them with cross-attention; the projection
        ("instructblip", 2 * 7 + 4 + (8 + 4) + 8 + 1),
        # keys and values twice; the abstractor
        ("mplug_owl2", 2 * 9 + 2 * 6 + 7),
        ("qwen2_vl", 2 * 7 + 2 * 4 + 2),  # the merger's two
    ],
)
def test_every_linear_layer_but_the_output_layer_is_quantised_as_in_the_papers_runs(adapter_of, name, count):
    adapter = adapter_of(name, NF4)
    found = adapter.as_loaded["quantised"]
    assert sum(found["layers"].values()) == count
    assert found["kept"] == ["language_model.lm_head" if name == "instructblip" else "lm_head"]
    plain = [type(module) for module in adapter_of(name, Precision()).model.modules()]
    assert plain.count(torch.nn.Linear) == count + 1
    told = {key: found[key] for key in ("type", "block", "double", "compute", "storage", "kernel")}
    assert told == {
        **{"type": "nf4", "block": "64", "double": "false", "compute": "float32", "storage": "uint8"},
        "kernel": "cpu, dequantised",
    }
    assert found["bitsandbytes"] == importlib.metadata.version("bitsandbytes")
    kept, packed = (adapter.as_loaded["parameter_types"][kind] for kind in ("float32", "uint8"))
    assert kept + 2 * packed == sum(parameter.numel() for parameter in adapter_of(name, Precision()).model.parameters())


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_weights_rounded_to_nf4_to_the_last_bit(adapter_of, folders, name):
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    rounded = load_adapter(FAMILIES[name], folders[name], Precision())
    before = first_logits(name, rounded)
    for layer in nf4.layers(adapter_of(name, NF4).model):
        weight = rounded.model.get_submodule(layer).weight
        weight.data = dequantize_4bit(*quantize_4bit(weight.data, quant_type="nf4"))
    found = first_logits(name, adapter_of(name, NF4))
    assert torch.equal(found, first_logits(name, rounded))
    assert not torch.allclose(found, before, atol=0.01)


def test_no_layer_is_left_on_the_path_of_some_cpus(folders, monkeypatch):
    import bitsandbytes

    monkeypatch.setattr(bitsandbytes.nn.modules, "has_avx512bf16", lambda: True)
    model = load_adapter("llava", folders["llava15"], NF4).model
    assert not any(layer.support_avx512bf16_for_cpu for layer in nf4.layers(model).values())
    next(iter(nf4.layers(model).values())).support_avx512bf16_for_cpu = True
    assert loaded.quantised(model)["kernel"] == "cpu, packed"


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 0.01), ("bfloat16", 0.08)])
@pytest.mark.parametrize("name", FAMILIES)
def test_both_engines_agree_in_nf4(adapter_of, name, dtype, tolerance):
    adapter = adapter_of(name, Precision(dtype, "nf4"))
    polled = [
        engines.Question("x", "random", number, "x", adapter.render(TEMPLATES[name], question))
        for number, question in enumerate(QUESTIONS)
    ]
    rows = [
        [row for batch in engine(adapter, polled, lambda _: picture(), [3869, 1939], 2) for row in batch]
        for engine in engines.ENGINES.values()
    ]
    for a, b in zip(*rows, strict=True):
        assert a["logit_3869"] == pytest.approx(b["logit_3869"], abs=tolerance)
        assert a["logsumexp"] == pytest.approx(b["logsumexp"], abs=tolerance)


# ---- sixteen bits ----


@pytest.mark.parametrize(
    ("dtype", "quantisation", "tolerance"),
    # weights that were rounded first fall into another of NF4's sixteen values here and there
    [("float16", "none", 0.005), ("bfloat16", "none", 0.03), ("float16", "nf4", 0.1), ("bfloat16", "nf4", 0.25)],
)
@pytest.mark.parametrize("name", FAMILIES)
def test_sixteen_bits_are_recorded_and_near_float32(adapter_of, name, dtype, quantisation, tolerance):
    adapter = adapter_of(name, Precision(dtype, quantisation))
    types = adapter.as_loaded["parameter_types"]
    # transformers holds InstructBLIP's queries, 4 of width 64, in float32 where all else is float16
    single = {"float32": 4 * 64} if (name, dtype) == ("instructblip", "float16") else {}
    assert {key: value for key, value in types.items() if key not in (dtype, "uint8")} == single
    assert ("uint8" in types) == (quantisation == "nf4")
    assert adapter.as_loaded["quantised"].get("compute", dtype) == dtype
    found = first_logits(name, adapter)
    wanted = first_logits(name, adapter_of(name, Precision("float32", quantisation)))
    assert found.dtype == torch.float32 and not torch.equal(found, wanted)
    assert (found - wanted).square().mean().sqrt() < tolerance * wanted.std()


def test_shards_of_two_precisions_are_told_apart_by_what_was_loaded(adapter_of):
    half, nf4_half, nf4_single = (
        adapter_of("llava15", Precision(*asked)).as_loaded
        for asked in (("float16",), ("float16", "nf4"), ("float32", "nf4"))
    )
    assert set(half) == set(logits.AS_LOADED) < set(logits.MOVES_A_LOGIT)
    assert [told.split(":")[0] for told in logits.differing(half, nf4_half)] == ["parameter_types", "quantised"]
    assert 'quantised: {"compute": "float16"} | {"compute": "float32"}' in logits.differing(nf4_half, nf4_single)


# ---- what is loaded is what was asked ----


def refusal(folders, precision):
    with pytest.raises(BadInput) as caught:
        load_adapter("llava", folders["llava15"], precision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed_settings(monkeypatch, **changes):
    asked = nf4.settings(torch.float32)
    for key, value in changes.items():
        setattr(asked, key, value)
    monkeypatch.setattr(nf4, "settings", lambda dtype: asked)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"llm_int8_skip_modules": ["lm_head", "model.vision_tower"]},
            "but model.vision_tower.encoder.layers.*.mlp.fc1",
        ),
        ({"llm_int8_skip_modules": []}, "but the output layer was not left out"),
        ({"bnb_4bit_use_double_quant": True}, "loaded with double true where false is asked"),
        ({"bnb_4bit_quant_type": "fp4"}, "loaded with type fp4 where nf4 is asked"),
        ({"bnb_4bit_compute_dtype": torch.bfloat16}, "loaded with compute bfloat16 where float32 is asked"),
    ],
)
def test_another_quantisation_than_asked_is_refused(folders, monkeypatch, changes, sentence):
    changed_settings(monkeypatch, **changes)
    assert sentence in refusal(folders, NF4)


def test_nf4_without_a_4_bit_layer_is_refused(folders, monkeypatch):
    monkeypatch.setattr(Precision, "load_arguments", lambda self: {"dtype": torch.float32})
    assert "no layer of the loaded LlavaForConditionalGeneration is 4-bit" in refusal(folders, NF4)


def test_a_quantised_checkpoint_is_refused_where_none_is_asked(adapter_of, tmp_path):
    adapter = adapter_of("llava15", NF4)
    adapter.model.save_pretrained(tmp_path)
    adapter.processor.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=r"run.quantisation is none but 28 layers of the checkpoint are 4-bit"):
        load_adapter("llava", tmp_path, Precision())


def test_a_parameter_in_another_type_is_refused(folders):
    model = load_adapter("llava", folders["llava15"], Precision("float16")).model
    model.lm_head.float()
    with pytest.raises(BadInput, match=r"run.dtype is float16 but lm_head.weight was loaded as float32"):
        loaded.verified(model, model.get_decoder(), Precision("float16"))


def test_another_attention_kernel_is_refused_and_each_kind_is_recorded(folders, adapter_of):
    used = adapter_of("llava15", Precision(attention="eager")).as_loaded["attention_used"]
    assert used == {"CLIPAttention": "eager", "LlamaAttention": "eager"}
    model = load_adapter("llava", folders["llava15"], Precision()).model
    # the tower keeps what was asked
    model.get_decoder().config._attn_implementation = "eager"
    with pytest.raises(BadInput, match=r"run.attention is sdpa but the decoder of LlavaFor.* was loaded with eager"):
        loaded.verified(model, model.get_decoder(), Precision())


# ---- machines that cannot ----


@pytest.mark.parametrize("library", ["bitsandbytes", "accelerate"])
def test_a_missing_library_is_named(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BadInput, match=f"run.quantisation is nf4 but {library} is not installed here"):
        NF4.check()


def test_a_library_that_cannot_be_imported_is_named(monkeypatch):
    def broken(name):
        raise OSError("libcudart.so.12: cannot open shared object file\nmore")

    monkeypatch.setattr(nf4.importlib, "import_module", broken)
    with pytest.raises(BadInput, match=r"cannot be imported here \(libcudart.so.12: cannot open shared object file\)"):
        NF4.check()


def failing_for(width):
    from bitsandbytes.nn import Linear4bit

    computed = Linear4bit.forward

    def forward(self, x):
        if self.in_features == width:
            raise RuntimeError("shape '[32, 0]' is invalid for input of size 2048")
        return computed(self, x)

    return forward


def test_a_device_that_cannot_compute_it_is_refused_before_anything_is_loaded(monkeypatch):
    from bitsandbytes.nn import Linear4bit

    NF4.check()
    Precision("float16", "nf4").check()
    monkeypatch.setattr(Linear4bit, "forward", failing_for(64))
    with pytest.raises(
        BadInput, match=r"bitsandbytes [\d.]+ cannot compute it on cpu in float32 here \(shape '\[32, 0\]'"
    ):
        NF4.check()


def test_layers_of_a_size_that_cannot_be_computed_are_refused_by_name(folders, monkeypatch):
    from bitsandbytes.nn import Linear4bit

    monkeypatch.setattr(Linear4bit, "forward", failing_for(32))
    NF4.check()
    with pytest.raises(BadInput, match=r"cannot multiply by layer model.visual.blocks.0.attn.qkv of 32 by 96 here"):
        load_adapter("qwen2_vl", folders["qwen2_vl"], NF4)


def test_a_model_without_4_bit_layers_needs_no_bitsandbytes(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert load_adapter("llava", folders["llava15"], Precision()).as_loaded["quantised"] == {}
