"""LLaVA-1.5: image features in place of one run of <image> tokens, LLaMA vocabulary."""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import DynamicCache
from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration
from transformers.models.llava.processing_llava import LlavaProcessor

from workflow.models.adapter import Adapter
from workflow.models.opening import Opening, common_length
from workflow.models.precision import Precision


class Family(Adapter):
    """``LlavaForConditionalGeneration`` with ``LlavaProcessor``; prompts hold ``<image>`` once."""

    model_class = LlavaForConditionalGeneration
    processor_class = LlavaProcessor
    per_position = ("input_ids",)
    """Inputs with one entry a position of the prompt."""

    def load(self, folder: Path, precision: Precision) -> None:
        """Load weights and processor; ``backend="pil"`` keeps pixels equal whether torchvision is there or not."""
        model = self.model_class.from_pretrained(folder, **precision.load_arguments())
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

    @torch.inference_mode()
    def open(self, image: Image.Image, prompts: Sequence[str]) -> Opening:
        """Read the ids that the prompts have in common, image included, once into a cache.

        What the decoder makes of a position depends on earlier positions only, so all of this may be shared.
        """
        inputs = self.encode([image], prompts[:1])
        count = self.image_positions(inputs)[0]
        prompt_ids = self.prompt_ids(prompts, count)
        if prompt_ids[0] != inputs["input_ids"][0].tolist():
            raise RuntimeError("the processor no longer makes ids as the tokenizer does; use the pinned transformers")
        image_ends = int((inputs["input_ids"][0] == self.model.config.image_token_id).nonzero().max()) + 1
        shared = common_length(prompt_ids, image_ends)
        del inputs["attention_mask"]
        inputs |= {name: inputs[name][:, :shared] for name in self.per_position}
        cache = DynamicCache(config=self.model.config)
        position = self.prefill(inputs, cache)
        rests = [torch.tensor(ids[shared:], device=self.model.device) for ids in prompt_ids]
        return Opening(prompt_ids, count, cache, shared, position, rests)

    def prompt_ids(self, prompts: Sequence[str], count: int) -> list[list[int]]:
        """Return the ids of prompts whose image takes ``count`` positions, without looking at the image again."""
        token = self.processor.image_token
        return self.tokenizer([prompt.replace(token, token * count) for prompt in prompts])["input_ids"]

    def prefill(self, inputs: dict[str, torch.Tensor], cache: DynamicCache) -> int:
        """Read inputs into the cache and return the position index that comes next."""
        self.model(**inputs, cache=cache, use_cache=True, logits_to_keep=1)
        return inputs["input_ids"].shape[1]
