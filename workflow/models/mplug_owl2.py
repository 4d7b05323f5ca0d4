"""mPLUG-Owl2 through the modelling code that its checkpoint brings."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from workflow.models.adapter import Adapter
from workflow.models.opening import Opening, common_length
from workflow.models.precision import Precision

PLACEHOLDER = "<|image|>"
IMAGE_TOKEN = -200
"""Id that stands for the image in ``input_ids``; the model's own code replaces it by its image queries."""


class Family(Adapter):
    """Prompts hold ``<|image|>`` once; the pixels are passed as ``images``."""

    remote_code = True
    packs = False  # the checkpoint's code makes positions and masks itself
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
        rows = self.prompt_ids(prompts)
        width = max(len(row) for row in rows)
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        device = self.model.device
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "images": self.pixels(images)}

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Return images as the tower takes them."""
        pixels = self.image_processor(images=list(images), return_tensors="pt")["pixel_values"]
        return pixels.to(self.model.device, self.model.dtype)

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return ids of prompts, with -200 where the image stands."""
        rows = []
        for prompt in prompts:
            before, after = prompt.split(PLACEHOLDER)
            tail = self.tokenizer.encode(after, add_special_tokens=False)
            rows.append([*self.tokenizer.encode(before), IMAGE_TOKEN, *tail])
        return rows

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Every image becomes the same number of queries."""
        return [self.model.config.num_image_tokens] * len(inputs["input_ids"])

    @torch.inference_mode()
    def open(self, image: Image.Image, prompts: Sequence[str]) -> Opening:
        """Read the ids that the prompts have in common, image included, once through the checkpoint's own code.

        What follows is text, which that code reads behind a cache like any further token.
        """
        prompt_ids = self.prompt_ids(prompts)
        shared = common_length(prompt_ids, prompt_ids[0].index(IMAGE_TOKEN) + 1)
        device = self.model.device
        prefix = torch.tensor([prompt_ids[0][:shared]], device=device)
        cache = DynamicCache(config=self.model.config)
        self.model(input_ids=prefix, images=self.pixels([image]), cache=cache, use_cache=True)
        rests = [torch.tensor(ids[shared:], device=device) for ids in prompt_ids]
        count = self.model.config.num_image_tokens
        position = shared - 1 + count
        return Opening(prompt_ids, count, cache, position, position, rests)
