"""mPLUG-Owl2 through the modelling code that its checkpoint brings."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from workflow.models.adapter import Adapter
from workflow.models.precision import Precision

PLACEHOLDER = "<|image|>"
IMAGE_TOKEN = -200
"""Id that stands for the image in ``input_ids``; the model's own code replaces it by its image queries."""


class Family(Adapter):
    """Prompts hold ``<|image|>`` once; the pixels are passed as ``images``."""

    remote_code = True
    unquantised = ("lm_head", "model.vision_model", "model.visual_abstractor")

    def load(self, folder: Path, precision: Precision) -> None:
        """Load weights with the checkpoint's own classes; only this family is allowed to."""
        model = AutoModelForCausalLM.from_pretrained(
            folder, trust_remote_code=True, **precision.load_arguments(self.unquantised)
        )
        self.model = precision.placed(model)
        # without the configuration at hand this would load, and ask about, the remote code once more
        self.tokenizer = AutoTokenizer.from_pretrained(folder, config=self.model.config)
        self.image_processor = CLIPImageProcessorPil.from_pretrained(folder)

    @property
    def chat_renderer(self) -> object:
        """The tokenizer; the family has no processor."""
        return self.tokenizer

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return ids with -200 in place of the image, their mask, and pixels."""
        rows = [self._ids(prompt) for prompt in prompts]
        width = max(len(row) for row in rows)
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        pixels = self.image_processor(images=list(images), return_tensors="pt")["pixel_values"]
        device = self.model.device
        return {
            "input_ids": ids.to(device),
            "attention_mask": mask.to(device),
            "images": pixels.to(device, self.model.dtype),
        }

    def _ids(self, prompt: str) -> list[int]:
        before, after = prompt.split(PLACEHOLDER)
        tail = self.tokenizer.encode(after, add_special_tokens=False)
        return [*self.tokenizer.encode(before), IMAGE_TOKEN, *tail]

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Every image becomes the same number of queries."""
        return [self.model.config.num_image_tokens] * len(inputs["input_ids"])
