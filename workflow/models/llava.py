"""LLaVA-1.5: image features in place of one run of <image> tokens, LLaMA vocabulary."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration
from transformers.models.llava.processing_llava import LlavaProcessor

from workflow.models.adapter import Adapter
from workflow.models.precision import Precision


class Family(Adapter):
    """``LlavaForConditionalGeneration`` with ``LlavaProcessor``; prompts hold ``<image>`` once."""

    model_class = LlavaForConditionalGeneration
    processor_class = LlavaProcessor
    unquantised = ("lm_head", "model.vision_tower", "model.multi_modal_projector")

    def load(self, folder: Path, precision: Precision) -> None:
        """Load weights and processor; ``backend="pil"`` keeps pixels equal whether torchvision is there or not."""
        model = self.model_class.from_pretrained(folder, **precision.load_arguments(self.unquantised))
        self.model = precision.placed(model)
        self.processor = self.processor_class.from_pretrained(folder, backend="pil")
        self.tokenizer = self.processor.tokenizer

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return processor output; the processor expands ``<image>`` to as many tokens as the image has."""
        inputs = self.processor(
            images=list(images), text=list(prompts), padding=True, padding_side="left", return_tensors="pt"
        )
        return self.placed(inputs)

    def placed(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return inputs on the model's device, pixels in its number type."""
        moved = {name: value.to(self.model.device) for name, value in inputs.items()}
        moved["pixel_values"] = moved["pixel_values"].to(self.model.dtype)
        return moved

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Count the image token in each prompt."""
        return (inputs["input_ids"] == self.model.config.image_token_id).sum(dim=1).tolist()
