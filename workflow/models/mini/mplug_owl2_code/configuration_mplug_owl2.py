"""Configuration of the miniature of mPLUG-Owl2."""

from transformers import LlamaConfig


class MPLUGOwl2Config(LlamaConfig):
    """A LLaMA configuration with a CLIP tower and a visual abstractor.

    Parameters
    ----------
    visual_config
        ``visual_model``: arguments of ``CLIPVisionConfig``. ``visual_abstractor``: num_learnable_queries, the positions
        an image takes in the prompt; num_attention_heads; intermediate_size.
    """

    model_type = "mplug_owl2"

    def __init__(self, visual_config=None, **kwargs):
        self.visual_config = visual_config or {"visual_model": {}, "visual_abstractor": {}}
        super().__init__(**kwargs)
