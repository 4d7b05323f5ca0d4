"""The sizes that the plan prints, counted again from what the checkpoints publish of their shapes."""

import csv

import pytest
import torch
from transformers import AutoConfig
from transformers.models.clip.modeling_clip import CLIPModel
from transformers.models.instructblip.modeling_instructblip import InstructBlipForConditionalGeneration
from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration
from transformers.models.llava_next.modeling_llava_next import LlavaNextForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration

# the shapes in each config.json; what is not named has transformers' default, which is that of the checkpoint
TOWER = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
    "projection_dim": 768,
}
LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}
SHAPES = {
    "llava-hf/llava-1.5-7b-hf": (
        LlavaForConditionalGeneration,
        "llava",
        {"vision_config": TOWER, "text_config": LLAMA | {"model_type": "llama", "vocab_size": 32064}},
    ),
    "llava-hf/llava-v1.6-mistral-7b-hf": (
        LlavaNextForConditionalGeneration,
        "llava_next",
        {
            "vision_config": TOWER,
            "text_config": LLAMA
            | {
                "model_type": "mistral",
                "vocab_size": 32064,
                "intermediate_size": 14336,
                "num_key_value_heads": 8,
            },
        },
    ),
    "Salesforce/instructblip-vicuna-7b": (
        InstructBlipForConditionalGeneration,
        "instructblip",
        {
            "num_query_tokens": 32,
            "vision_config": {
                "hidden_size": 1408,
                "intermediate_size": 6144,
                "num_hidden_layers": 39,
                "num_attention_heads": 16,
                "image_size": 224,
                "patch_size": 14,
                "qkv_bias": True,
            },
            "qformer_config": {
                "vocab_size": 30523,
                "hidden_size": 768,
                "intermediate_size": 3072,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "cross_attention_frequency": 2,
                "encoder_hidden_size": 1408,
            },
            "text_config": LLAMA | {"model_type": "llama", "vocab_size": 32001},
        },
    ),
    "Qwen/Qwen2-VL-7B-Instruct": (
        Qwen2VLForConditionalGeneration,
        "qwen2_vl",
        {
            "tie_word_embeddings": False,
            "text_config": {
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "vocab_size": 152064,
            },
            "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "patch_size": 14},
        },
    ),
    "openai/clip-vit-base-patch32": (
        CLIPModel,
        "clip",
        {
            "projection_dim": 512,
            "text_config": {
                "hidden_size": 512,
                "intermediate_size": 2048,
                "num_hidden_layers": 12,
                "num_attention_heads": 8,
            },
            "vision_config": {
                "hidden_size": 768,
                "intermediate_size": 3072,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "image_size": 224,
                "patch_size": 32,
            },
        },
    ),
    "openai/clip-vit-large-patch14-336": (
        CLIPModel,
        "clip",
        {
            "projection_dim": 768,
            "text_config": {
                "hidden_size": 768,
                "intermediate_size": 3072,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
            },
            "vision_config": TOWER,
        },
    ),
}


@pytest.fixture(scope="module")
def sizes(repository):
    with open(repository / "workflow/published/sizes.csv", newline="") as stream:
        return {row["name"]: row for row in csv.DictReader(stream)}


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_those_of_the_architecture(sizes, name):
    model, kind, shape = SHAPES[name]
    with torch.device("meta"):
        counted = sum(parameter.numel() for parameter in model(AutoConfig.for_model(kind, **shape)).parameters())
    row = sizes[name]
    assert counted == int(row["parameters"])
    assert float(row["gigabytes"]) == round(counted * int(row["bytes_each"]) / 1e9, 1)


def test_every_counted_row_is_counted_here(sizes):
    assert {name for name, row in sizes.items() if row["parameters"]} == SHAPES.keys()


def test_one_count_agrees_with_the_index_that_its_checkpoint_publishes(sizes):
    # total_size in model.safetensors.index.json of Qwen2-VL-7B-Instruct
    assert int(sizes["Qwen/Qwen2-VL-7B-Instruct"]["parameters"]) * 2 == 16_582_751_232


def test_what_mplug_owl2_has_besides_its_abstractor(sizes):
    """A LLaMA-2-7B whose layers have keys, values and both norms once more for image positions, and a ViT-L/14."""
    width, layers = 4096, 32
    llama = 2 * 32000 * width + layers * (4 * width**2 + 3 * width * 11008 + 2 * width) + width
    assert llama == 6_738_415_616
    image = layers * (2 * width**2 + 2 * width)
    tower = 24 * (4 * (1024**2 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024)
    tower += 1024 * 3 * 14**2 + 1024 * (1 + (448 // 14) ** 2 + 1) + 4 * 1024
    counted = llama + image + tower
    assert round(counted / 1e9, 2) == 8.12
    assert 0 < float(sizes["MAGAer13/mplug-owl2-llama2-7b"]["gigabytes"]) - counted * 2 / 1e9 < 0.3


def test_questions_are_as_large_as_the_table_of_sources_says(repository, sizes):
    with open(repository / "workflow/sources.csv", newline="") as stream:
        held = [row for row in csv.DictReader(stream) if row["name"].startswith("pope/9b5410653a70")]
    total = sum(int(row["bytes"]) for row in held)
    assert len(held) == 3 and f"{total:,} bytes" in sizes["questions"]["note"]
    assert float(sizes["questions"]["gigabytes"]) == round(total / 1e9, 4)
