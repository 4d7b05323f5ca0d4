"""mPLUG-Owl2 through the modelling code of its authors.

The checkpoint holds no code. The authors' package ``mplug_owl2`` is fetched at a commit of its own into ``code/``
beside the weights (models.*.code) and imported from there; it needs transformers 4.31 to 4.34 and changes that
library's LLaMA classes for the whole process, so a job runs nothing else.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoTokenizer

from workflow.models import own_code
from workflow.models.adapter import Adapter
from workflow.models.opening import Opening, common_length
from workflow.models.past import Past
from workflow.models.precision import Precision

try:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil as CLIPImageProcessor
except ImportError:
    from transformers import CLIPImageProcessor

PLACEHOLDER = "<|image|>"
IMAGE_TOKEN = -200
"""Id that stands for the image in ``input_ids``; the model's own code replaces it by its image queries."""


class Family(Adapter):
    """Prompts hold ``<|image|>`` once; pixels go in as ``images``; ``generate`` returns the prompt, -200 included.

    ``forward`` takes neither position ids nor a mask for every pair of positions, and counts positions of a padded
    prompt wrongly, so questions are never padded. Its one attention kernel is the eager one, whatever is asked for.
    """

    attends_as_asked = False
    packs = False

    def load(self, folder: Path, precision: Precision) -> None:
        """Load weights with the classes in ``code/``, and the slow tokenizer, which their authors use."""
        arguments = precision.load_arguments()
        arguments.pop("attn_implementation", None)
        arguments["torch_dtype"] = arguments.pop("dtype", None) or arguments.get("torch_dtype")
        model = own_code.load(folder / own_code.FOLDER, "mplug_owl2").MPLUGOwl2LlamaForCausalLM.from_pretrained(
            folder, **arguments
        )
        self.model = precision.placed(model)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, config=self.model.config, use_fast=False)
        self.image_processor = CLIPImageProcessor.from_pretrained(folder)
        with torch.inference_mode():
            # queries, and one position more where the code puts a mark behind them
            self.queries = self.model.encode_images(self.pixels([Image.new("RGB", (28, 28))])).shape[1]

    @property
    def chat_renderer(self) -> object:
        """The tokenizer; the family has no processor."""
        return self.tokenizer

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return ids with -200 in place of the image, their mask, and pixels; prompts must be equally long."""
        rows = self.prompt_ids(prompts)
        if len({len(row) for row in rows}) > 1:
            raise ValueError("the modelling code of mPLUG-Owl2 misplaces padding: encode prompts of one length")
        ids = torch.tensor(rows, device=self.model.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "images": self.pixels(images)}

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Return images as the tower takes them: stretched to squares, as the authors' own evaluation does."""
        squares = [image.resize((max(image.size), max(image.size))) for image in images]
        pixels = self.image_processor(images=squares, return_tensors="pt")["pixel_values"]
        return pixels.to(self.model.device, self.model.dtype)

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return ids of prompts, with -200 where the image stands; a prompt's first text opens with the begin token."""
        rows = []
        for prompt in prompts:
            before, after = prompt.split(PLACEHOLDER)
            head = self.tokenizer.encode(before) if before else []
            rows.append([*head, IMAGE_TOKEN, *self.tokenizer.encode(after, add_special_tokens=not head)])
        return rows

    def batches(self, prompts: Sequence[str], batch_size: int) -> list[list[int]]:
        """Return batches of prompts of equal length, which need no padding."""
        alike: dict[int, list[int]] = {}
        for place, ids in enumerate(self.prompt_ids(prompts)):
            alike.setdefault(len(ids), []).append(place)
        return [
            places[start : start + batch_size]
            for places in alike.values()
            for start in range(0, len(places), batch_size)
        ]

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Every image takes the same number of positions."""
        return [self.queries] * len(inputs["input_ids"])

    def call_generate(self, inputs: dict[str, torch.Tensor], **settings: object) -> object:
        """Call ``generate`` and take the raw logits where they are made: releases before 4.38 do not return them."""
        raw: list[torch.Tensor] = []
        hook = self.model.lm_head.register_forward_hook(lambda *passed: raw.append(passed[-1][:, -1].float()))
        try:
            out = self.model.generate(**inputs, **settings)
        finally:
            hook.remove()
        out.logits, out.scores = tuple(raw), tuple(scores.float() for scores in out.scores)
        return out

    @torch.inference_mode()
    def open(self, image: Image.Image, prompts: Sequence[str]) -> Opening:
        """Read the ids that the prompts have in common, image included, once.

        What follows is text, which the model's code reads behind keys and values like any further token.
        """
        prompt_ids = self.prompt_ids(prompts)
        shared = common_length(prompt_ids, prompt_ids[0].index(IMAGE_TOKEN) + 1)
        device = self.model.device
        prefix = torch.tensor([prompt_ids[0][:shared]], device=device)
        cache = Past(self.model(input_ids=prefix, images=self.pixels([image]), use_cache=True).past_key_values)
        rests = [torch.tensor(ids[shared:], device=device) for ids in prompt_ids]
        position = shared - 1 + self.queries
        return Opening(prompt_ids, self.queries, cache, position, position, rests)

    @torch.inference_mode()
    def read(self, feed: torch.Tensor, cache: Past, *_: object, **__: object) -> torch.Tensor:
        """Let the decoder read ids of equal length on, behind what is held; the last position's logits."""
        out = self.model(input_ids=feed, past_key_values=cache.layers, use_cache=True)
        cache.layers = out.past_key_values
        return out.logits[:, -1:].float()
