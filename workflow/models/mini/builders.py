"""The five architectures at mini size, and the files that stand beside the weights in their repositories."""

import shutil
from pathlib import Path

from torch import nn
from transformers import (
    CLIPVisionConfig,
    InstructBlipConfig,
    InstructBlipForConditionalGeneration,
    InstructBlipProcessor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
    LlavaProcessor,
    MistralConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from workflow.lib.scenes import CELL, GRID, SIZE
from workflow.models.mini import tokenizers

SIZES = {
    "llava15": 32064,
    "llava16_mistral": 32064,
    "instructblip": 32064,
    "mplug_owl2": 32000,
    "qwen2_vl": 152064,
}
IMAGE_IDS = {"llava15": 32000, "llava16_mistral": 32000, "instructblip": 32000, "qwen2_vl": 151655}
PATCHES = GRID * GRID
QUERIES = 4
QWEN_SECTIONS = [2, 3, 3]
OWL_CODE = Path(__file__).parent / "mplug_owl2_code"


def text_shape(settings: dict, size: int) -> dict:
    """Return what all decoders share: their shape, and the size of the table."""
    return {
        "vocab_size": size,
        "hidden_size": settings["width"],
        "intermediate_size": settings["text_mlp"],
        "num_hidden_layers": settings["text_layers"],
        "num_attention_heads": settings["heads"],
        "num_key_value_heads": settings["heads"],
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": float(settings["rope_theta"])},
        "tie_word_embeddings": False,
    }


def clip_shape(settings: dict) -> CLIPVisionConfig:
    """Return the CLIP tower: one patch a grid cell."""
    return CLIPVisionConfig(
        hidden_size=settings["width"],
        intermediate_size=settings["vision_mlp"],
        num_hidden_layers=settings["vision_layers"],
        num_attention_heads=settings["heads"],
        image_size=SIZE,
        patch_size=CELL,
        projection_dim=settings["width"],
    )


def llama_ids(name: str) -> dict:
    """Return the special ids of the SentencePiece-like vocabularies."""
    return {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0 if name == "mplug_owl2" else 32001}


def owl_classes() -> tuple[type, type]:
    """Return the configuration and model class of the code that is copied into the checkpoint."""
    folder = "workflow.models.mini.mplug_owl2_code"
    module = __import__(folder, fromlist=["MPLUGOwl2LlamaForCausalLM"])
    return module.MPLUGOwl2LlamaForCausalLM.config_class, module.MPLUGOwl2LlamaForCausalLM


def build(name: str, settings: dict, size: int) -> PreTrainedModel:
    """Return an untrained model of the true class whose table has ``size`` rows.

    Special ids in the configuration are those of the full vocabulary; a compact table therefore has to be
    expanded before the model is used through its own ``forward``.
    """
    text = text_shape(settings, size)
    if name == "mplug_owl2":
        configuration, model = owl_classes()
        abstractor = {"num_learnable_queries": PATCHES, "num_attention_heads": 4, "intermediate_size": 128}
        visual = {"visual_model": clip_shape(settings).to_dict(), "visual_abstractor": abstractor}
        return model(configuration(**text, visual_config=visual))
    image = {"image_token_index": IMAGE_IDS[name]} if name != "qwen2_vl" else {}
    if name == "llava15":
        configuration = LlavaConfig(
            vision_config=clip_shape(settings), text_config=LlamaConfig(**text), vision_feature_layer=-2, **image
        )
        return LlavaForConditionalGeneration(configuration)
    if name == "llava16_mistral":
        configuration = LlavaNextConfig(
            vision_config=clip_shape(settings),
            text_config=MistralConfig(**text, sliding_window=None),
            vision_feature_layer=-2,
            image_grid_pinpoints=[[SIZE, SIZE]],
            **image,
        )
        return LlavaNextForConditionalGeneration(configuration)
    if name == "instructblip":
        width, heads = settings["width"], settings["heads"]
        configuration = InstructBlipConfig(
            vision_config={
                "hidden_size": width,
                "intermediate_size": settings["vision_mlp"],
                "num_hidden_layers": settings["vision_layers"] - 1,
                "num_attention_heads": heads,
                "image_size": SIZE,
                "patch_size": CELL,
                "initializer_range": 0.02,
            },
            qformer_config={
                "vocab_size": len(tokenizers.for_qformer()),
                "hidden_size": width,
                "num_hidden_layers": 2,
                "num_attention_heads": heads,
                "intermediate_size": settings["qformer_mlp"],
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
                "cross_attention_frequency": 2,
                "encoder_hidden_size": width,
                "max_position_embeddings": 64,
            },
            text_config=LlamaConfig(**text).to_dict(),
            num_query_tokens=QUERIES,
            **image,
        )
        return InstructBlipForConditionalGeneration(configuration)
    if name == "qwen2_vl":
        text["rope_parameters"] |= {"mrope_section": QWEN_SECTIONS}
        # the special ids lie outside a compact table; set_special_ids writes them
        text |= {"bos_token_id": None, "eos_token_id": None}
        configuration = Qwen2VLConfig(
            text_config=text,
            vision_config={
                "depth": settings["qwen_vision_layers"],
                "embed_dim": settings["qwen_vision_width"],
                "hidden_size": settings["width"],
                "num_heads": 2,
                "mlp_ratio": 2,
                "patch_size": CELL // 2,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
            image_token_id=IMAGE_IDS[name],
            video_token_id=151656,
            vision_start_token_id=151652,
            vision_end_token_id=151653,
            tie_word_embeddings=False,
        )
        return Qwen2VLForConditionalGeneration(configuration)
    raise ValueError(f"no such mini model: {name!r}; there are {', '.join(SIZES)}")


def decoder_of(name: str, model: PreTrainedModel) -> nn.Module:
    """Return the module that holds ``embed_tokens``, ``layers`` and ``norm``."""
    if name == "instructblip":
        return model.language_model.model
    return model.model if name == "mplug_owl2" else model.model.language_model


def head_owner(name: str, model: PreTrainedModel) -> nn.Module:
    """Return the module that holds ``lm_head``."""
    return model.language_model if name == "instructblip" else model


def set_table(name: str, model: PreTrainedModel, embed, head) -> None:
    """Replace the table of input rows and of output rows, and the vocabulary size in the configuration."""
    size, width = embed.shape
    decoder_of(name, model).embed_tokens = nn.Embedding(size, width, _weight=embed)
    owner = head_owner(name, model)
    owner.lm_head = nn.Linear(width, size, bias=False)
    owner.lm_head.weight = nn.Parameter(head)
    decoder_of(name, model).config.vocab_size = owner.config.vocab_size = size
    model.config.get_text_config().vocab_size = size


def set_special_ids(name: str, model: PreTrainedModel) -> None:
    """Write the ids of begin, end and padding where generation looks for them."""
    if name == "qwen2_vl":
        ids = {"bos_token_id": 151643, "eos_token_id": [151645, 151643], "pad_token_id": 151643}
        kept = {"bos_token_id": 151643, "eos_token_id": 151645, "pad_token_id": None}
    else:
        ids = kept = llama_ids(name)
    owners = [model, model.language_model] if name == "instructblip" else [model]
    for owner in owners:
        for key, value in ids.items():
            setattr(owner.generation_config, key, value)
    for key, value in kept.items():
        setattr(model.config.get_text_config(), key, value)
        setattr(decoder_of(name, model).config, key, value)


def clip_processor() -> CLIPImageProcessorPil:
    """Return the CLIP image processor; an image of the scenes' size passes unchanged in size."""
    return CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})


def save_processor(name: str, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write tokenizer, image processor, chat template and modelling code as the real repository has them."""
    if name == "llava15":
        LlavaProcessor(
            image_processor=clip_processor(),
            tokenizer=tokenizer,
            patch_size=CELL,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
            chat_template=tokenizers.LLAVA_TEMPLATE,
        ).save_pretrained(folder)
    elif name == "llava16_mistral":
        LlavaNextProcessor(
            image_processor=LlavaNextImageProcessorPil(
                size={"shortest_edge": SIZE},
                crop_size={"height": SIZE, "width": SIZE},
                image_grid_pinpoints=[[SIZE, SIZE]],
            ),
            tokenizer=tokenizer,
            patch_size=CELL,
            vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
            chat_template=tokenizers.LLAVA_NEXT_TEMPLATE,
        ).save_pretrained(folder)
    elif name == "instructblip":
        InstructBlipProcessor(
            image_processor=BlipImageProcessorPil(size={"height": SIZE, "width": SIZE}),
            tokenizer=tokenizer,
            qformer_tokenizer=tokenizers.for_qformer(),
            num_query_tokens=QUERIES,
        ).save_pretrained(folder)
    elif name == "qwen2_vl":
        # Qwen2VLProcessor itself needs a video processor and that needs torchvision, so its parts are saved
        Qwen2VLImageProcessorPil(
            size={"shortest_edge": SIZE * SIZE, "longest_edge": SIZE * SIZE},
            patch_size=CELL // 2,
            merge_size=2,
            temporal_patch_size=2,
        ).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    else:
        clip_processor().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        package = folder / "code" / "mplug_owl2"
        package.mkdir(parents=True)
        for source in sorted(OWL_CODE.glob("*.py")):
            shutil.copyfile(source, package / source.name)
