"""Qwen2-VL: image patches at native resolution with 3-D positions, byte-level vocabulary."""

from collections.abc import Sequence

import torch
from PIL import Image
from transformers import DynamicCache
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor
from transformers.processing_utils import ProcessorMixin

from workflow.models import llava


class ImageOnlyProcessor(Qwen2VLProcessor):
    """Qwen2-VL's processor without its video part, which needs torchvision and is never used here."""

    # the mixin reads a processor's parts off this signature, so naming no video processor leaves it out
    def __init__(self, image_processor=None, tokenizer=None, chat_template=None, **_ignored) -> None:
        self.image_token = "<|image_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token = self.video_token_id = None
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


class Family(llava.Family):
    """``Qwen2VLForConditionalGeneration``; prompts come from the chat template and hold ``<|image_pad|>`` once."""

    model_class = Qwen2VLForConditionalGeneration
    processor_class = ImageOnlyProcessor
    per_position = ("input_ids", "mm_token_type_ids")

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return processor output; without ``mm_token_type_ids`` generate places the image wrongly and says nothing."""
        inputs = super().encode(images, prompts)
        if "mm_token_type_ids" not in inputs:
            raise RuntimeError("the Qwen2-VL processor returned no mm_token_type_ids; use the pinned transformers")
        return inputs

    def prefill(self, inputs: dict[str, torch.Tensor], cache: DynamicCache) -> int:
        """Read inputs into the cache; an image takes fewer position indices than positions.

        Positions are passed explicitly: left to itself the model goes on from what it remembers of the image before.
        """
        places = {name: inputs[name] for name in ("input_ids", "mm_token_type_ids", "image_grid_thw")}
        positions, _ = self.model.model.get_rope_index(**places)
        self.model(**inputs, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1)
        return int(positions.max()) + 1
