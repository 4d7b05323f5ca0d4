"""InstructBLIP before transformers 5.

A prompt is rendered as in the current adapter and its ids hold no placeholder: the model puts the Q-Former's queries in
front of all of them, so image positions are the queries and come first. ``generate`` returns a begin token of its own
making and the new tokens, without the prompt: a parser of the whole returned text sees the answer alone.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoTokenizer, BlipImageProcessor
from transformers.models.instructblip.modeling_instructblip import InstructBlipForConditionalGeneration

from workflow.models.older import llava
from workflow.models.precision import Precision


class Family(llava.Family):
    """``InstructBlipForConditionalGeneration`` with ``BlipImageProcessor`` and two tokenizers."""

    model_class = InstructBlipForConditionalGeneration
    image_processor_class = BlipImageProcessor

    def load(self, folder: Path, precision: Precision) -> None:
        """Load as LLaVA, and the Q-Former's tokenizer."""
        super().load(folder, precision)
        # 4.45 would look for placeholders that today's processor puts into the ids; without the key it prepends too
        self.model.config.image_token_index = None
        self.qformer_tokenizer = AutoTokenizer.from_pretrained(folder, subfolder="qformer_tokenizer")

    def load_arguments(self, precision: Precision) -> dict[str, object]:
        """Return the keyword arguments for ``from_pretrained``: the kernel cannot be chosen for this family.

        The decoder runs sdpa in 4.40 and eager later, the vision tower and the Q-Former have their own attention, which
        is eager. What is not asked for is refused as soon as the model is loaded.
        """
        arguments = super().load_arguments(precision)
        del arguments["attn_implementation"]
        return arguments

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return ids, pixels, and the Q-Former's ids padded on the right: it counts positions from the first."""
        inputs = super().encode(images, prompts)
        self.qformer_tokenizer.padding_side = "right"
        asked = self.qformer_tokenizer(list(prompts), padding=True, return_tensors="pt")
        device = self.model.device
        return inputs | {f"qformer_{name}": asked[name].to(device) for name in ("input_ids", "attention_mask")}

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Every prompt has the same number of queries in front."""
        return [self.model.config.num_query_tokens] * len(inputs["input_ids"])

    def returned_prompt(self, front: torch.Tensor, prompt: torch.Tensor, steps: int) -> bool:
        """Return false where one begin token came back, which is not the prompt; refuse anything else as usual."""
        return front.shape[1] != 1 and super().returned_prompt(front, prompt, steps)
