"""LLaVA-1.5 before transformers 5, and what the older adapters have in common.

A prompt is rendered as in the current adapter. Its ids hold ``<image>`` once: the model itself puts the image's
features there, so image positions are counted from the features, and they lie in one run where ``<image>`` stands.
``generate`` returns the prompt, with that one ``<image>``, and the new tokens. The processor class of the checkpoint is
left out: 4.40.1 does not know the keys of today's processor_config.json, and 4.45.2 would expand ``<image>`` by them,
which gives the same logits. Where transformers itself computes something else than version 5, the families say so.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoTokenizer, CLIPImageProcessor, __version__
from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration

from workflow.lib import environments, files
from workflow.lib.errors import BadInput
from workflow.models.adapter import Adapter
from workflow.models.opening import Opening
from workflow.models.precision import Precision


class Family(Adapter):
    """``LlavaForConditionalGeneration`` with ``CLIPImageProcessor``; prompts hold ``<image>`` once."""

    model_class = LlavaForConditionalGeneration
    image_processor_class = CLIPImageProcessor

    def load(self, folder: Path, precision: Precision) -> None:
        """Load weights, tokenizer, image processor and, where the checkpoint has one, the chat template."""
        refuse_newer(folder)
        model = self.model_class.from_pretrained(folder, **self.load_arguments(precision))
        self.model = precision.placed(model)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        if (folder / "chat_template.json").is_file():
            self.tokenizer.chat_template = files.read_json(folder / "chat_template.json")["chat_template"]
        self.image_processor = self.image_processor_class.from_pretrained(folder)

    def load_arguments(self, precision: Precision) -> dict[str, object]:
        """Return the keyword arguments for ``from_pretrained``."""
        return precision.load_arguments()

    @property
    def chat_renderer(self) -> object:
        """The tokenizer, which also has the chat template of the processor."""
        return self.tokenizer

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return ids with one ``<image>`` a prompt, their mask, and what the image processor makes of the images."""
        text = self.tokenizer(list(prompts), padding=True, return_tensors="pt")
        inputs = {name: text[name] for name in ("input_ids", "attention_mask")}
        return self.placed(inputs | dict(self.image_processor(list(images), return_tensors="pt")))

    def placed(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return inputs on the model's device, pixels in its number type."""
        moved = {name: value.to(self.model.device) for name, value in inputs.items()}
        moved["pixel_values"] = moved["pixel_values"].to(self.model.dtype)
        return moved

    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Count the features that take the place of ``<image>``."""
        marks = (inputs["input_ids"] == self.model.config.image_token_index).sum(dim=1).tolist()
        return [count * features for count, features in zip(marks, self.features(inputs), strict=True)]

    def features(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Return how many features each image has: one a patch, and one for the class where that is not dropped."""
        config = self.model.config
        side = config.vision_config.image_size // config.vision_config.patch_size
        count = side**2 + (config.vision_feature_select_strategy == "full")
        return [count] * len(inputs["input_ids"])

    def open(self, image: Image.Image, prompts: Sequence[str]) -> Opening:
        """Refuse: the cache of these versions is not the one that the shared engine is written for."""
        environments.need_current("the engine shared_prefix (run.engine)", __version__)


def refuse_newer(folder: Path) -> None:
    """Refuse a checkpoint that transformers 5 wrote: older versions would skip keys of its configuration, unnoticed."""
    written = files.read_json(folder / "config.json").get("transformers_version", "")
    if written and not environments.is_older(written):
        raise BadInput(
            f"{folder / 'config.json'} was written by transformers {written}, and {__version__}, which is installed "
            "here, would read it wrongly: use the checkpoint as it was published, or the environment cpu or gpu."
        )
