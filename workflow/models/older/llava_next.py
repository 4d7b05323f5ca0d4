"""LLaVA-1.6 (LLaVA-NeXT) before transformers 5.

As LLaVA-1.5. An image has the features of its base and of its tiles, without those that lie on padding, and one more at
the end of each row. These versions find the padding by ``int(length * scale)``, version 5 by the same after rounding to
seven digits: where floats fall just short of a whole number, an image has other positions here.
"""

import torch
from transformers import LlavaNextImageProcessor
from transformers.models.llava_next.modeling_llava_next import (
    LlavaNextForConditionalGeneration,
    get_anyres_image_grid_shape,
    unpad_image,
)

from workflow.models.older import llava


class Family(llava.Family):
    """``LlavaNextForConditionalGeneration`` with ``LlavaNextImageProcessor``."""

    model_class = LlavaNextForConditionalGeneration
    image_processor_class = LlavaNextImageProcessor

    def features(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Return the features of each image, by the functions with which the model cuts padding off."""
        config = self.model.config
        size = config.vision_config.image_size
        side = size // config.vision_config.patch_size
        counts = []
        for height, width in inputs["image_sizes"].tolist():
            rows, columns = get_anyres_image_grid_shape((height, width), config.image_grid_pinpoints, size)
            kept = unpad_image(torch.empty(1, rows * side, columns * side), (height, width))
            counts.append(side**2 + kept.shape[1] * (kept.shape[2] + 1))
        return counts
