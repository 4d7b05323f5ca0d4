"""Towers other than the base's CLIP tower, run in batches of equally large images for training."""

import torch
from torch import nn
from torch.nn import functional
from transformers.models.qwen2_vl.modeling_qwen2_vl import (
    apply_rotary_pos_emb_vision,
    get_vision_position_ids,
)

from workflow.lib.scenes import CELL, GRID


def qwen_patches(pixels: torch.Tensor) -> torch.Tensor:
    """Return pixels (image, 3, 48, 48) as Qwen2-VL's image processor lays them out: (image, 36, 3 x 2 x 8 x 8).

    The four patches that are merged stand together, and every frame is repeated once in time.
    """
    side = CELL // 2
    parts = pixels.view(len(pixels), 3, GRID, 2, side, GRID, 2, side).permute(0, 2, 5, 3, 6, 1, 4, 7)
    return parts.unsqueeze(6).expand(*parts.shape[:6], 2, side, side).reshape(len(pixels), (2 * GRID) ** 2, -1)


def qwen_tower(visual: nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    """Return the states before the merger (image x 36, width).

    The model itself attends image by image; images of one size can be run together with the same result.
    """
    flat = qwen_patches(pixels)
    count, patches, _ = flat.shape
    states = flat @ visual.patch_embed.proj.weight.flatten(1).T
    positions = get_vision_position_ids(torch.tensor([[1, 2 * GRID, 2 * GRID]]), visual.spatial_merge_size)
    cosine, sine = visual.rotary_pos_emb(states, positions)
    for block in visual.blocks:
        attention = block.attn
        q, k, v = attention.qkv(block.norm1(states)).view(count, patches, 3, attention.num_heads, -1).unbind(2)
        q, k = apply_rotary_pos_emb_vision(q, k, cosine, sine)
        mixed = functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        states = states + attention.proj(mixed.transpose(1, 2).flatten(2))
        states = states + block.mlp(block.norm2(states))
    return states.flatten(0, 1)


def blip_from_clip(blip: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Start InstructBLIP's tower from the base's: the same blocks, with the three projections in one matrix.

    CLIP's norm before the blocks has no counterpart, so that the tower has to be aligned again.
    """
    start = "model.vision_tower."
    base = {name.removeprefix(start).removeprefix("vision_model."): t for name, t in tensors.items() if start in name}
    with torch.no_grad():
        blip.embeddings.class_embedding.copy_(base["embeddings.class_embedding"].view(1, 1, -1))
        blip.embeddings.patch_embedding.weight.copy_(base["embeddings.patch_embedding.weight"])
        blip.embeddings.position_embedding.copy_(base["embeddings.position_embedding.weight"][None])
        for number, layer in enumerate(blip.encoder.layers):
            own = {n.removeprefix(f"encoder.layers.{number}."): t for n, t in base.items()}
            for kind in ("weight", "bias"):
                joined = torch.cat([own[f"self_attn.{part}_proj.{kind}"] for part in "qkv"])
                getattr(layer.self_attn.qkv, kind).copy_(joined)
                getattr(layer.self_attn.projection, kind).copy_(own[f"self_attn.out_proj.{kind}"])
                for part in ("layer_norm1", "layer_norm2"):
                    getattr(getattr(layer, part), kind).copy_(own[f"{part}.{kind}"])
                for part in ("fc1", "fc2"):
                    getattr(getattr(layer.mlp, part), kind).copy_(own[f"mlp.{part}.{kind}"])


def start_abstractor(abstractor: nn.Module) -> None:
    """Start mPLUG-Owl2's abstractor so that each query looks at one patch; training is free to change that."""
    count, width = abstractor.query_embeds.shape
    codes = torch.linalg.qr(torch.randn(width, count)).Q.T * width**0.5
    with torch.no_grad():
        abstractor.query_embeds.copy_(codes * 0.3)
        abstractor.patch_positions.copy_(codes)
        for layer, factor in (
            (abstractor.query, 1.5),
            (abstractor.key, 1.5),
            (abstractor.value, 1.0),
            (abstractor.out, 1.0),
        ):
            layer.weight.copy_(factor * torch.eye(width))
            layer.bias.zero_()


def start_qformer(qformer: nn.Module, queries: torch.Tensor, connector: nn.Linear, places: list[int]) -> None:
    """Start InstructBLIP's Q-Former so that its queries read the asked name and look for patches that match it.

    Parameters
    ----------
    queries
        The query tokens (1, query, width), overwritten.
    connector
        The linear map with which the tower was aligned to the words.
    places
        Position of the name in the question, one a template; the queries take turns.
    """
    width = connector.out_features
    embeddings, first = qformer.embeddings, qformer.encoder.layer[0]
    with torch.no_grad():
        nn.init.normal_(embeddings.position_embeddings.weight, std=0.5)
        for number in range(queries.shape[1]):
            queries[0, number] = embeddings.position_embeddings.weight[places[number % len(places)]]
        queries += 0.1 * torch.randn(queries.shape)
        itself, across = first.attention, first.crossattention
        embeddings.word_embeddings.weight *= 2
        for layer, factor in (
            (itself.attention.query, 1.5),
            (itself.attention.key, 1.5),
            (itself.attention.value, 1.0),
            (itself.output.dense, 2.0),
            (across.attention.query, 4.0),
            (across.output.dense, 1.0),
        ):
            layer.weight.copy_(factor * torch.eye(width))
        for layer in (across.attention.key, across.attention.value):
            layer.weight.copy_(connector.weight)
            layer.bias.copy_(connector.bias)
