"""Modelling code of the miniature of mPLUG-Owl2, loaded from the checkpoint folder.

The parts that set the family apart are here: learnable queries compress the image, and the decoder has separate
layer norms, keys and values for visual and textual positions. The interface, with its limits, is that of the
authors' code: ``input_ids`` hold IMAGE_TOKEN_INDEX where the image stands, pixels come as ``images``, the cache is a
tuple of keys and values by layer, there are no position ids, and a mask is lengthened on its left, wherever the image
stands, so that padded prompts are read wrongly.
"""

import torch
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, DynamicCache, LlamaForCausalLM, LlamaModel
from transformers.modeling_outputs import CausalLMOutputWithPast

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
        own = config.visual_config["visual_abstractor"]
        self.heads = own["num_attention_heads"]
        self.query_embeds = nn.Parameter(torch.zeros(own["num_learnable_queries"], width))
        self.patch_positions = nn.Parameter(torch.zeros(patches, width))
        self.norm_patches = nn.LayerNorm(width)
        self.norm_queries = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, own["intermediate_size"])
        self.fc2 = nn.Linear(own["intermediate_size"], width)
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


class MPLUGOwl2LlamaModel(LlamaModel):
    """A LLaMA decoder with modality-adaptive layers, a CLIP tower and a visual abstractor."""

    config_class = MPLUGOwl2Config

    def __init__(self, config: MPLUGOwl2Config):
        super().__init__(config)
        visual = CLIPVisionConfig(**config.visual_config["visual_model"])
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
        """Return images as (batch, queries, hidden_size)."""
        tower = self.vision_model
        # layer by layer, because transformers records the states of a tower inside a decoder twice once
        # attentions have been asked for
        states = tower.pre_layrnorm(tower.embeddings(images))
        for layer in tower.encoder.layers[:-1]:
            states = layer(states, attention_mask=None)
        return self.visual_abstractor(states[:, 1:])


class MPLUGOwl2LlamaForCausalLM(LlamaForCausalLM):
    """mPLUG-Owl2 with its language modelling head."""

    config_class = MPLUGOwl2Config
    # the authors' code has one attention kernel
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = False

    def __init__(self, config: MPLUGOwl2Config):
        super().__init__(config)
        self.model = MPLUGOwl2LlamaModel(config)
        self.post_init()

    def encode_images(self, images):
        """Return images as (batch, positions, hidden_size)."""
        return self.model.encode_images(images)

    def merge_images(self, input_ids, images, attention_mask):
        """Put the images in the place of their index.

        Returns embeddings, attention mask and visual positions, each longer than ``input_ids`` by the number of
        image positions less one.
        """
        features = self.encode_images(images)
        count = features.shape[1]
        text = self.model.embed_tokens(input_ids.clamp(min=0))
        embeds, visual = [], []
        for row, place in enumerate((input_ids == IMAGE_TOKEN_INDEX).long().argmax(1).tolist()):
            embeds.append(torch.cat([text[row, :place], features[row].to(text.dtype), text[row, place + 1 :]]))
            seen = torch.zeros(len(embeds[-1]), dtype=torch.bool, device=text.device)
            seen[place : place + count] = True
            visual.append(seen)
        if attention_mask is not None:
            more = attention_mask.new_ones(len(attention_mask), count - 1)
            attention_mask = torch.cat([more, attention_mask], dim=1)
        return torch.stack(embeds), attention_mask, torch.stack(visual)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        output_attentions=None,
        output_hidden_states=None,
        images=None,
        return_dict=None,
    ):
        visual = None
        cache = DynamicCache(past_key_values) if past_key_values else DynamicCache()
        if images is not None and past_key_values and input_ids.shape[1] == 1:
            # after the prompt everything is seen, padding too
            attention_mask = None
        elif images is not None:
            inputs_embeds, attention_mask, visual = self.merge_images(input_ids, images, attention_mask)
            input_ids = None
        self.model.mark(visual)
        try:
            out = self.model(
                input_ids=input_ids,
                inputs_embeds=inputs_embeds,
                attention_mask=attention_mask,
                cache=cache,
                use_cache=True,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
            )
        finally:
            self.model.mark(None)
        return CausalLMOutputWithPast(
            logits=self.lm_head(out.last_hidden_state),
            # read as past_key_values too
            cache=tuple((layer.keys, layer.values) for layer in cache.layers),
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **kwargs):
        if past_key_values:
            input_ids = input_ids[:, -1:]
        return {
            "input_ids": input_ids,
            "past_key_values": past_key_values,
            "use_cache": kwargs.get("use_cache"),
            "attention_mask": attention_mask,
            "images": kwargs.get("images"),
            # today's transformers hands it on here
            "output_attentions": kwargs.get("output_attentions"),
        }

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs, **kwargs):
        # transformers hands on caches of its own kind only
        model_kwargs = super()._update_model_kwargs_for_generation(outputs, model_kwargs, **kwargs)
        return model_kwargs | {"past_key_values": outputs.past_key_values}
