"""Configuration of the miniature of mPLUG-Owl2."""

from transformers import LlamaConfig


class MPLUGOwl2Config(LlamaConfig):
    """A LLaMA configuration with a CLIP tower and a visual abstractor.

    Parameters
    ----------
    visual_config
        Arguments of ``CLIPVisionConfig``.
    num_image_tokens
        Number of learnable queries of the abstractor, that is of positions an image takes in the prompt.
    abstractor_heads, abstractor_width
        Attention heads and inner width of the abstractor.
    """

    model_type = "mplug_owl2"

    def __init__(self, visual_config=None, num_image_tokens=9, abstractor_heads=4, abstractor_width=128, **kwargs):
        self.visual_config = visual_config or {}
        self.num_image_tokens = num_image_tokens
        self.abstractor_heads = abstractor_heads
        self.abstractor_width = abstractor_width
        super().__init__(**kwargs)
