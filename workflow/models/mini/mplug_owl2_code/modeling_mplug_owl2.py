"""Modelling code of the miniature of mPLUG-Owl2, loaded from the checkpoint folder as remote code.

The parts that set the family apart are here: learnable queries compress the image, and the decoder has separate
layer norms, keys and values for visual and textual positions. The interface is the family's own: ``input_ids``
hold IMAGE_TOKEN_INDEX once where the image stands, pixels come as ``images``, and ``generate`` returns the prompt
ids followed by the new ones.
"""

import torch
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaForCausalLM, LlamaModel

from .configuration_mplug_owl2 import MPLUGOwl2Config

IMAGE_TOKEN_INDEX = -200


class ModalityAdaptive(nn.Module):
    """Two modules of one kind, the first for textual and the second for visual positions.

    ``visual`` is set by the model before its layers run: a boolean tensor (batch, length), or None where every
    position is textual.
    """

    def __init__(self, text: nn.Module, image: nn.Module):
        super().__init__()
        self.text = text
        self.image = image
        self.visual = None

    def select(self, x, visual):
        """Return the visual module's output where ``visual`` holds and the textual one's elsewhere."""
        if visual is None:
            return self.text(x)
        return torch.where(visual[..., None], self.image(x), self.text(x))

    def forward(self, x):
        return self.select(x, self.visual)


class VisualAbstractor(nn.Module):
    """Learnable queries attend to the patches (and to themselves) and are mapped to the decoder's width."""

    def __init__(self, config: MPLUGOwl2Config, width: int, patches: int):
        super().__init__()
        self.heads = config.abstractor_heads
        self.query_embeds = nn.Parameter(torch.zeros(config.num_image_tokens, width))
        self.patch_positions = nn.Parameter(torch.zeros(patches, width))
        self.norm_patches = nn.LayerNorm(width)
        self.norm_queries = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, config.abstractor_width)
        self.fc2 = nn.Linear(config.abstractor_width, width)
        self.visual_fc = nn.Linear(width, config.hidden_size)

    def forward(self, patches):
        queries = self.query_embeds.expand(len(patches), -1, -1)
        seen = self.norm_patches(patches)
        asked = self.norm_queries(queries)
        keys = torch.cat([seen + self.patch_positions, asked], dim=1)
        values = torch.cat([seen, asked], dim=1)
        split = [
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, x in ((self.query, asked), (self.key, keys), (self.value, values))
        ]
        mixed = nn.functional.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        states = queries + self.out(mixed)
        states = states + self.fc2(nn.functional.gelu(self.fc1(self.norm_mlp(states))))
        return self.visual_fc(states)


class MPLUGOwl2Model(LlamaModel):
    """A LLaMA decoder with modality-adaptive layers, a CLIP tower and a visual abstractor."""

    config_class = MPLUGOwl2Config

    def __init__(self, config: MPLUGOwl2Config):
        super().__init__(config)
        visual = CLIPVisionConfig(**config.visual_config)
        self.vision_model = CLIPVisionModel(visual)
        self.visual_abstractor = VisualAbstractor(
            config, visual.hidden_size, (visual.image_size // visual.patch_size) ** 2
        )
        width = config.hidden_size
        for layer in self.layers:
            for owner, name in (
                (layer, "input_layernorm"),
                (layer, "post_attention_layernorm"),
                (layer.self_attn, "k_proj"),
                (layer.self_attn, "v_proj"),
            ):
                text = getattr(owner, name)
                if isinstance(text, nn.Linear):
                    image = nn.Linear(width, text.out_features, bias=False)
                else:
                    image = type(text)(width, eps=config.rms_norm_eps)
                setattr(owner, name, ModalityAdaptive(text, image))
        self.post_init()

    def mark(self, visual):
        """Tell the modality-adaptive modules which positions of the next forward are visual."""
        for module in self.modules():
            if isinstance(module, ModalityAdaptive):
                module.visual = visual

    def encode_images(self, images):
        """Return the image as (batch, num_image_tokens, hidden_size)."""
        tower = self.vision_model
        # layer by layer, because transformers records the states of a tower inside a decoder twice once
        # attentions have been asked for
        states = tower.pre_layrnorm(tower.embeddings(images))
        for layer in tower.encoder.layers[:-1]:
            states = layer(states, attention_mask=None)
        return self.visual_abstractor(states[:, 1:])


class MPLUGOwl2ForCausalLM(LlamaForCausalLM):
    """mPLUG-Owl2 with its language modelling head."""

    config_class = MPLUGOwl2Config

    def __init__(self, config: MPLUGOwl2Config):
        super().__init__(config)
        self.model = MPLUGOwl2Model(config)
        self.post_init()

    def merge_images(self, input_ids, images, attention_mask):
        """Put the image in the place of its index.

        Returns embeddings, attention mask and visual positions, each longer than ``input_ids`` by the number of
        image tokens less one.

        Raises
        ------
        ValueError
            Where a row does not hold IMAGE_TOKEN_INDEX exactly once, or rows and images differ in number.
        """
        places = input_ids == IMAGE_TOKEN_INDEX
        if len(images) != len(input_ids) or not bool((places.sum(1) == 1).all()):
            raise ValueError("every prompt must hold the image index exactly once, and there is one image a prompt")
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        features = self.model.encode_images(images)
        text = self.model.embed_tokens(input_ids.clamp(min=0))
        count = features.shape[1]
        embeds, masks, visual = [], [], []
        for row in range(len(input_ids)):
            place = int(places[row].nonzero())
            embeds.append(torch.cat([text[row, :place], features[row].to(text.dtype), text[row, place + 1 :]]))
            inserted = attention_mask.new_ones(count)
            masks.append(torch.cat([attention_mask[row, :place], inserted, attention_mask[row, place + 1 :]]))
            seen = torch.zeros(len(embeds[-1]), dtype=torch.bool, device=text.device)
            seen[place : place + count] = True
            visual.append(seen)
        return torch.stack(embeds), torch.stack(masks), torch.stack(visual)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        inputs_embeds=None,
        images=None,
        visual_positions=None,
        logits_to_keep=0,
        **kwargs,
    ):
        # generate looks for logits_to_keep in this signature; without it every position of a prompt is scored
        if images is not None and inputs_embeds is None:
            inputs_embeds, attention_mask, visual_positions = self.merge_images(input_ids, images, attention_mask)
            input_ids = None
        self.model.mark(visual_positions)
        try:
            return super().forward(
                input_ids=input_ids,
                attention_mask=attention_mask,
                inputs_embeds=inputs_embeds,
                logits_to_keep=logits_to_keep,
                **kwargs,
            )
        finally:
            self.model.mark(None)

    def prepare_inputs_for_generation(self, input_ids, visual_positions=None, inputs_embeds=None, **kwargs):
        inputs = super().prepare_inputs_for_generation(input_ids, inputs_embeds=inputs_embeds, **kwargs)
        if inputs.get("inputs_embeds") is not None:
            inputs["visual_positions"] = visual_positions
        return inputs

    @torch.no_grad()
    def generate(self, inputs=None, images=None, attention_mask=None, **kwargs):
        """Generate after a prompt; the returned sequences start with the prompt as it was given."""
        prompt = kwargs.pop("input_ids", None) if inputs is None else inputs
        if images is None:
            return super().generate(prompt, attention_mask=attention_mask, **kwargs)
        embeds, attention_mask, visual = self.merge_images(prompt, images, attention_mask)
        out = super().generate(inputs_embeds=embeds, attention_mask=attention_mask, visual_positions=visual, **kwargs)
        if isinstance(out, torch.Tensor):
            return torch.cat([prompt, out], dim=1)
        out.sequences = torch.cat([prompt, out.sequences], dim=1)
        return out
