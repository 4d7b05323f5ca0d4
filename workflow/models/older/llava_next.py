"""LLaVA-1.6 (LLaVA-NeXT) before transformers 5.

As LLaVA-1.5. An image has the features of its base and of its tiles, without those that lie on padding, and one more at
the end of each row. Two things differ from version 5, so that logits of some images do:

- Where the tiles have an odd number of padding rows or columns, as for an image of 640 x 427 pixels, these versions pad
  one less, and stretch the last row or column of tiles to its size. Logits then differ visibly.
- The padding among the features is found by ``int(length * scale)``, in version 5 after rounding to seven digits. Of
  all sizes up to 640 x 640 pixels eight have another number of positions by that, such as 328 x 205.
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
