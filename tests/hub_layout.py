"""Tiny checkpoints in the layout of the real repositories on the hub, with random weights.

No version of transformers writes them, so every version is given the same bytes: configuration keys, processor files,
tokenizers and tensor names are those of the real repositories at the revisions in workflow/studies/full.yaml, as far as
public documentation tells, and only sizes are other ones. Widths are multiples of 64, which NF4 needs on some machines.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from tests.hub_tokenizers import QWEN_IDS, bert_tokenizer, decoder_entry, llama_tokenizer, qwen_tokenizer
from workflow.models.mini import tokenizers as mini

FAMILIES = ("llava", "llava_next", "instructblip", "qwen2_vl")
WIDTH, MLP, LAYERS, HEADS = 64, 128, 2, 4
SIDE, PATCH = 56, 14
PATCHES = (SIDE // PATCH) ** 2
QUERIES = 4
ROWS = {"llava": 32064, "llava_next": 32064, "instructblip": 32064, "qwen2_vl": 10048}
PINPOINTS = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE], [3 * SIDE, SIDE], [SIDE, 3 * SIDE]]
IMAGE_IDS = {"llava": 32000, "llava_next": 32000, "instructblip": 32001, "qwen2_vl": QWEN_IDS["<|image_pad|>"]}
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]


def picture(number: int, width: int = 80, height: int = 60) -> Image.Image:
    """Return an image of coloured blocks and noise, the same everywhere."""
    draw = np.random.default_rng(number)
    blocks = draw.integers(0, 256, (height // 10, width // 10, 3)).repeat(10, axis=0).repeat(10, axis=1)
    return Image.fromarray(np.clip(blocks + draw.normal(0, 20, blocks.shape), 0, 255).astype(np.uint8))


class Weights:
    """Random float16 tensors by name; matrices keep the size of what passes through them."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.tensors: dict[str, np.ndarray] = {}

    def free(self, name: str, *shape: int, scale: float = 1.0, centre: float = 0.0) -> None:
        self.tensors[name] = (centre + scale * self.draw.standard_normal(shape)).astype(np.float16)

    def linear(self, name: str, inputs: int, outputs: int, bias: bool = True) -> None:
        self.free(f"{name}.weight", outputs, inputs, scale=inputs**-0.5)
        if bias:
            self.free(f"{name}.bias", outputs, scale=0.1)

    def norm(self, name: str, bias: bool = True) -> None:
        self.free(f"{name}.weight", WIDTH, scale=0.1, centre=1.0)
        if bias:
            self.free(f"{name}.bias", WIDTH, scale=0.1)

    def decoder(self, prefix: str, rows: int, kv_heads: int = HEADS, bias: bool = False) -> None:
        """LLaMA, Mistral or, with biases of queries, keys and values, Qwen2; the output layer apart."""
        self.free(f"{prefix}.embed_tokens.weight", rows, WIDTH)
        for number in range(LAYERS):
            layer = f"{prefix}.layers.{number}"
            for part, size in (("q", WIDTH), ("k", kv_heads * WIDTH // HEADS), ("v", kv_heads * WIDTH // HEADS)):
                self.linear(f"{layer}.self_attn.{part}_proj", WIDTH, size, bias)
            self.linear(f"{layer}.self_attn.o_proj", WIDTH, WIDTH, False)
            for part, inputs, outputs in (("gate", WIDTH, MLP), ("up", WIDTH, MLP), ("down", MLP, WIDTH)):
                self.linear(f"{layer}.mlp.{part}_proj", inputs, outputs, False)
            self.norm(f"{layer}.input_layernorm", False)
            self.norm(f"{layer}.post_attention_layernorm", False)
        self.norm(f"{prefix}.norm", False)

    def tower(self, prefix: str, attention: tuple[tuple[str, int], ...]) -> None:
        """The layers that the towers of CLIP and BLIP have in common, but for the names in their attention."""
        for number in range(LAYERS):
            layer = f"{prefix}.encoder.layers.{number}"
            for part, outputs in attention:
                self.linear(f"{layer}.self_attn.{part}", WIDTH, outputs)
            self.norm(f"{layer}.layer_norm1")
            self.norm(f"{layer}.layer_norm2")
            self.linear(f"{layer}.mlp.fc1", WIDTH, MLP)
            self.linear(f"{layer}.mlp.fc2", MLP, WIDTH)
        self.norm(f"{prefix}.post_layernorm")

    def clip(self, prefix: str) -> None:
        self.free(f"{prefix}.embeddings.class_embedding", WIDTH)
        self.free(f"{prefix}.embeddings.patch_embedding.weight", WIDTH, 3, PATCH, PATCH, scale=0.04)
        self.free(f"{prefix}.embeddings.position_embedding.weight", PATCHES + 1, WIDTH)
        self.norm(f"{prefix}.pre_layrnorm")
        self.tower(prefix, tuple((f"{part}_proj", WIDTH) for part in ("q", "k", "v", "out")))

    def blip(self, prefix: str) -> None:
        self.free(f"{prefix}.embeddings.class_embedding", 1, 1, WIDTH)
        self.free(f"{prefix}.embeddings.patch_embedding.weight", WIDTH, 3, PATCH, PATCH, scale=0.04)
        self.free(f"{prefix}.embeddings.patch_embedding.bias", WIDTH, scale=0.1)
        self.free(f"{prefix}.embeddings.position_embedding", 1, PATCHES + 1, WIDTH)
        self.tower(prefix, (("qkv", 3 * WIDTH), ("projection", WIDTH)))

    def qformer(self, prefix: str, words: int) -> None:
        self.free(f"{prefix}.embeddings.word_embeddings.weight", words, WIDTH)
        self.free(f"{prefix}.embeddings.position_embeddings.weight", WIDTH, WIDTH)
        self.norm(f"{prefix}.embeddings.layernorm")
        for number in range(LAYERS):
            layer = f"{prefix}.encoder.layer.{number}"
            # every second layer looks at the image
            for kind in ("attention", "crossattention")[: 1 + (number % 2 == 0)]:
                for part in ("query", "key", "value"):
                    self.linear(f"{layer}.{kind}.attention.{part}", WIDTH, WIDTH)
                self.linear(f"{layer}.{kind}.output.dense", WIDTH, WIDTH)
                self.norm(f"{layer}.{kind}.output.LayerNorm")
            for kind in ("", "_query"):
                self.linear(f"{layer}.intermediate{kind}.dense", WIDTH, MLP)
                self.linear(f"{layer}.output{kind}.dense", MLP, WIDTH)
                self.norm(f"{layer}.output{kind}.LayerNorm")

    def qwen_tower(self, prefix: str) -> None:
        self.free(f"{prefix}.patch_embed.proj.weight", WIDTH, 3, 2, PATCH, PATCH, scale=0.03)
        for number in range(LAYERS):
            block = f"{prefix}.blocks.{number}"
            self.norm(f"{block}.norm1")
            self.norm(f"{block}.norm2")
            self.linear(f"{block}.attn.qkv", WIDTH, 3 * WIDTH)
            self.linear(f"{block}.attn.proj", WIDTH, WIDTH)
            self.linear(f"{block}.mlp.fc1", WIDTH, MLP)
            self.linear(f"{block}.mlp.fc2", MLP, WIDTH)
        self.norm(f"{prefix}.merger.ln_q")
        self.linear(f"{prefix}.merger.mlp.0", 4 * WIDTH, 4 * WIDTH)
        self.linear(f"{prefix}.merger.mlp.2", 4 * WIDTH, WIDTH)


def text_config(rows: int, **more: object) -> dict:
    shape = {
        "hidden_size": WIDTH,
        "intermediate_size": MLP,
        "max_position_embeddings": 4096,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-05,
        "torch_dtype": "float16",
        "vocab_size": rows,
    }
    return shape | more


def tower_config(**more: object) -> dict:
    shape = {
        "hidden_size": WIDTH,
        "image_size": SIDE,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "patch_size": PATCH,
    }
    return shape | more


def write(folder: Path, name: str, content: dict) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True), encoding="utf-8")


def image_config(kind: str, owner: str, size: dict, **more: object) -> dict:
    basis = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": CLIP_MEAN,
        "image_std": CLIP_STD,
        "image_processor_type": kind,
        "processor_class": owner,
        "resample": 3,
        "rescale_factor": 0.00392156862745098,
        "size": size,
    }
    return basis | more


def llava(folder: Path, family: str) -> None:
    """LLaVA-1.5 or LLaVA-NeXT; processor_config.json asks for the expansion of ``<image>``, as in the repositories."""
    following = family == "llava_next"
    names = ("LlavaNext", "llava_next") if following else ("Llava", "llava")
    text = text_config(ROWS[family], model_type="mistral" if following else "llama")
    if following:
        text |= {"num_key_value_heads": 2, "rope_theta": 1000000.0, "sliding_window": None}
    config = {
        "architectures": [f"{names[0]}ForConditionalGeneration"],
        "ignore_index": -100,
        "image_seq_length": PATCHES,
        "image_token_index": 32000,
        "model_type": names[1],
        "pad_token_id": 32001,
        "projector_hidden_act": "gelu",
        "text_config": text,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "transformers_version": "4.39.0.dev0" if following else "4.36.0.dev0",
        "vision_config": tower_config(model_type="clip_vision_model", projection_dim=WIDTH, vocab_size=32000),
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "vocab_size": ROWS[family],
    }
    crop = {"crop_size": {"height": SIDE, "width": SIDE}, "do_center_crop": True}
    if following:
        config |= {"image_grid_pinpoints": PINPOINTS, "use_image_newline_parameter": True}
        crop |= {"aspect_ratio_setting": "anyres", "do_pad": True, "image_grid_pinpoints": PINPOINTS}
    write(folder, "config.json", config)
    kind = "LlavaNextImageProcessor" if following else "CLIPImageProcessor"
    write(
        folder,
        "preprocessor_config.json",
        image_config(kind, f"{names[0]}Processor", {"shortest_edge": SIDE}, **crop),
    )
    write(
        folder,
        "processor_config.json",
        {
            "image_token": "<image>",
            "num_additional_image_tokens": 1,
            "patch_size": PATCH,
            "processor_class": f"{names[0]}Processor",
            "vision_feature_select_strategy": "default",
        },
    )
    template = mini.LLAVA_NEXT_TEMPLATE if following else mini.LLAVA_TEMPLATE
    write(folder, "chat_template.json", {"chat_template": template})
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 32001}
    write(folder, "generation_config.json", ids | {"_from_model_config": True})
    write_llama_tokenizer(folder, "mistral" if following else "llama", ("<s>", 1), {"<image>": 32000, "<pad>": 32001})
    weights = Weights(1 + following)
    weights.clip("vision_tower.vision_model")
    weights.linear("multi_modal_projector.linear_1", WIDTH, WIDTH)
    weights.linear("multi_modal_projector.linear_2", WIDTH, WIDTH)
    if following:
        weights.free("image_newline", WIDTH)
    weights.decoder("language_model.model", ROWS[family], 2 if following else HEADS)
    weights.linear("language_model.lm_head", WIDTH, ROWS[family], False)
    save_file(weights.tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_llama_tokenizer(folder: Path, family: str, begin: tuple[str, int], extra: dict[str, int]) -> None:
    content = llama_tokenizer(family, begin, extra)
    write(folder, "tokenizer.json", content)
    pad = next(piece for piece in extra if "pad" in piece.lower())
    write(
        folder,
        "tokenizer_config.json",
        {
            "add_bos_token": True,
            "add_eos_token": False,
            "added_tokens_decoder": decoder_entry(content["added_tokens"]),
            "bos_token": begin[0],
            "clean_up_tokenization_spaces": False,
            "eos_token": "</s>",
            "legacy": True,
            "model_max_length": 4096,
            "pad_token": pad,
            "padding_side": "left",
            "sp_model_kwargs": {},
            "tokenizer_class": "LlamaTokenizer",
            "unk_token": "<unk>",
            "use_default_system_prompt": False,
        },
    )


def instructblip(folder: Path) -> None:
    """InstructBLIP with Vicuna; its tokenizer begins texts with ``</s>``, as the released one does."""
    family, words = "instructblip", bert_tokenizer()
    size = len(words["model"]["vocab"])
    write(
        folder,
        "config.json",
        {
            "architectures": ["InstructBlipForConditionalGeneration"],
            "image_token_index": 32001,
            "initializer_factor": 1.0,
            "initializer_range": 0.02,
            "model_type": "instructblip",
            "num_query_tokens": QUERIES,
            "qformer_config": {
                "attention_probs_dropout_prob": 0.1,
                "cross_attention_frequency": 2,
                "encoder_hidden_size": WIDTH,
                "hidden_act": "gelu",
                "hidden_dropout_prob": 0.1,
                "hidden_size": WIDTH,
                "intermediate_size": MLP,
                "layer_norm_eps": 1e-12,
                "max_position_embeddings": WIDTH,
                "model_type": "instructblip_qformer",
                "num_attention_heads": HEADS,
                "num_hidden_layers": LAYERS,
                "vocab_size": size,
            },
            "text_config": text_config(
                ROWS[family],
                architectures=["LLaMAForCausalLM"],
                bos_token_id=1,
                eos_token_id=2,
                model_type="llama",
                pad_token_id=32000,
            ),
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "transformers_version": "4.31.0.dev0",
            "use_decoder_only_language_model": True,
            "vision_config": tower_config(
                hidden_act="gelu", layer_norm_eps=1e-06, model_type="instructblip_vision_model", qkv_bias=True
            ),
        },
    )
    size_ = {"height": SIDE, "width": SIDE}
    write(folder, "preprocessor_config.json", image_config("BlipImageProcessor", "InstructBlipProcessor", size_))
    write(folder, "processor_config.json", {"num_query_tokens": QUERIES, "processor_class": "InstructBlipProcessor"})
    write(folder, "generation_config.json", {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2})
    write_llama_tokenizer(folder, "llama", ("</s>", 2), {"[PAD]": 32000, "<image>": 32001})
    write(folder, "qformer_tokenizer/tokenizer.json", words)
    special = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("cls", "mask", "pad", "sep", "unk")}
    write(
        folder,
        "qformer_tokenizer/tokenizer_config.json",
        special
        | {
            "do_lower_case": True,
            "model_max_length": 512,
            "tokenizer_class": "BertTokenizer",
            "truncation_side": "left",
        },
    )
    pieces = sorted(words["model"]["vocab"], key=words["model"]["vocab"].get)
    (folder / "qformer_tokenizer/vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    weights = Weights(3)
    weights.free("query_tokens", 1, QUERIES, WIDTH)
    weights.blip("vision_model")
    weights.qformer("qformer", size)
    weights.linear("language_projection", WIDTH, WIDTH)
    weights.decoder("language_model.model", ROWS[family])
    weights.linear("language_model.lm_head", WIDTH, ROWS[family], False)
    save_file(weights.tensors, folder / "model.safetensors", metadata={"format": "pt"})


def qwen2_vl(folder: Path) -> None:
    """Qwen2-VL: the text model's keys stand at the top of config.json."""
    family = "qwen2_vl"
    text = text_config(ROWS[family], rms_norm_eps=1e-06, rope_theta=1000000.0)
    ids = {
        name: QWEN_IDS[f"<|{name}|>"] for name in ("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")
    }
    write(
        folder,
        "config.json",
        text
        | {
            "architectures": ["Qwen2VLForConditionalGeneration"],
            "attention_dropout": 0.0,
            "bos_token_id": QWEN_IDS["<|endoftext|>"],
            "eos_token_id": QWEN_IDS["<|im_end|>"],
            "hidden_act": "silu",
            "image_token_id": ids["image_pad"],
            "max_window_layers": LAYERS,
            "model_type": "qwen2_vl",
            "num_key_value_heads": 2,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "sliding_window": 32768,
            "tie_word_embeddings": False,
            "transformers_version": "4.41.2",
            "use_cache": True,
            "use_sliding_window": False,
            "video_token_id": ids["video_pad"],
            "vision_config": {
                "depth": LAYERS,
                "embed_dim": WIDTH,
                "hidden_size": WIDTH,
                "in_chans": 3,
                "mlp_ratio": MLP // WIDTH,
                "num_heads": HEADS,
                "patch_size": PATCH,
                "spatial_merge_size": 2,
                "spatial_patch_size": PATCH,
                "temporal_patch_size": 2,
            },
            "vision_end_token_id": ids["vision_end"],
            "vision_start_token_id": ids["vision_start"],
            "vision_token_id": ids["vision_pad"],
        },
    )
    write(
        folder,
        "preprocessor_config.json",
        {
            "image_mean": CLIP_MEAN,
            "image_processor_type": "Qwen2VLImageProcessor",
            "image_std": CLIP_STD,
            "max_pixels": 12845056,
            "merge_size": 2,
            "min_pixels": 3136,
            "patch_size": PATCH,
            "processor_class": "Qwen2VLProcessor",
            "temporal_patch_size": 2,
        },
    )
    write(folder, "chat_template.json", {"chat_template": mini.QWEN_TEMPLATE})
    write(
        folder,
        "generation_config.json",
        {
            "bos_token_id": QWEN_IDS["<|endoftext|>"],
            "do_sample": True,
            "eos_token_id": [QWEN_IDS["<|im_end|>"], QWEN_IDS["<|endoftext|>"]],
            "pad_token_id": QWEN_IDS["<|endoftext|>"],
            "temperature": 0.01,
            "top_k": 1,
            "top_p": 0.001,
            "transformers_version": "4.37.0",
        },
    )
    content = qwen_tokenizer()
    write(folder, "tokenizer.json", content)
    write(
        folder,
        "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "added_tokens_decoder": decoder_entry(content["added_tokens"]),
            "additional_special_tokens": [piece for piece in QWEN_IDS if piece != "<|endoftext|>"],
            "bos_token": None,
            "chat_template": mini.QWEN_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 32768,
            "pad_token": "<|endoftext|>",
            "padding_side": "left",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    weights = Weights(4)
    weights.qwen_tower("visual")
    weights.decoder("model", ROWS[family], 2, bias=True)
    weights.linear("lm_head", WIDTH, ROWS[family], False)
    save_file(weights.tensors, folder / "model.safetensors", metadata={"format": "pt"})


def build(family: str, folder: Path) -> Path:
    """Write the tiny checkpoint of a family and return its folder."""
    if family in ("llava", "llava_next"):
        llava(folder, family)
    else:
        {"instructblip": instructblip, "qwen2_vl": qwen2_vl}[family](folder)
    return folder
