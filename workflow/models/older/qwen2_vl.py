"""Qwen2-VL in transformers 4.45, the first that knows it.

A prompt is rendered by the chat template and holds ``<|image_pad|>`` once; the processor repeats it, so image positions
are those tokens. ``generate`` returns the prompt so expanded and the new tokens. Positions are worked out inside
``generate`` from the ids and the size of the image.

In NF4 this version converts pixels to the type in which weights of the tower are stored. That is uint8 once the tower
is 4-bit, so most of the image is lost before the tower sees it. The released code and the version that the paper names
come to this; the scores that it prints do not look like it.
"""

from collections.abc import Sequence

import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor

from workflow.models.older import llava


class Family(llava.Family):
    """``Qwen2VLForConditionalGeneration`` with ``Qwen2VLProcessor``."""

    model_class = Qwen2VLForConditionalGeneration
    image_processor_class = Qwen2VLImageProcessor

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return processor output; the processor expands ``<|image_pad|>`` to as many tokens as the image has."""
        processor = Qwen2VLProcessor(self.image_processor, self.tokenizer)
        return self.placed(dict(processor(images=list(images), text=list(prompts), padding=True, return_tensors="pt")))

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Count the image token in each prompt."""
        return (inputs["input_ids"] == self.model.config.image_token_id).sum(dim=1).tolist()
