"""A training forward of the decoders: one image prefix, many questions, only the outputs that are read.

LLaMA, Mistral and Qwen2-VL decoder layers have the same parts, so one function runs all three on the weights of
the transformers modules themselves. The prefix is computed once an image; of the last layer only the positions
that are read are computed. The result equals the model's own forward.
"""

import torch
from torch import nn
from torch.nn import functional

Rotation = tuple[torch.Tensor, torch.Tensor]


def rotation(positions: torch.Tensor, head_size: int, theta: float, sections: list[int] | None = None) -> Rotation:
    """Return cosines and sines (position, head_size) of rotary positions.

    Parameters
    ----------
    positions
        (length,) or, with ``sections``, (3, length): time, height and width as in Qwen2-VL.
    """
    inverse = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles = positions[..., None].float() * inverse
    if sections:
        angles = torch.cat([part[i] for i, part in enumerate(angles.split(sections, dim=-1))], dim=-1)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, turn: Rotation) -> torch.Tensor:
    """Apply rotary positions to (batch, head, length, head_size)."""
    half = x.shape[-1] // 2
    return x * turn[0] + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * turn[1]


def pick(turn: Rotation, positions: list[int]) -> Rotation:
    """Return the rotation at some positions."""
    return turn[0][positions], turn[1][positions]


def call(module: nn.Module, x: torch.Tensor, visual: torch.Tensor | None) -> torch.Tensor:
    """Run a layer norm or projection; a modality-adaptive one gets told which positions are visual."""
    if hasattr(module, "select"):
        return module.select(x, visual)
    if hasattr(module, "variance_epsilon"):
        # one kernel in place of the module's six
        return functional.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)
    return module(x)


def heads(x: torch.Tensor, head_size: int) -> torch.Tensor:
    """Turn (batch, length, width) into (batch, head, length, head_size)."""
    return x.view(*x.shape[:2], -1, head_size).transpose(1, 2)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, output: nn.Module) -> torch.Tensor:
    """Run attention and the output projection."""
    # at these sizes plain products are faster than the fused kernel, above all backwards
    weights = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
    mixed = torch.softmax(weights.masked_fill(~mask, float("-inf")), dim=-1) @ v
    return output(mixed.transpose(1, 2).flatten(2))


def packed_forward(
    layers: nn.ModuleList,
    prefix: torch.Tensor | None,
    suffix: torch.Tensor,
    turns: tuple[Rotation | None, Rotation],
    read: list[int],
    visual: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run decoder layers on prefixes that several suffixes share.

    Parameters
    ----------
    prefix
        Embeddings (image, P, width), or None where nothing is shared.
    suffix
        Embeddings (image x question, S, width), questions of an image adjacent.
    turns
        Rotations of the prefix and of the suffix.
    read
        Suffix positions wanted from the last layer.
    visual
        Which positions are visual, (P,) and (S,); only for modality-adaptive layers.

    Returns
    -------
    states of the last layer at ``read`` (image x question, len(read), width), before the final norm, and all
    suffix states before the last layer (image x question, S, width).
    """
    size = suffix.shape[1]
    head_size = turns[1][0].shape[-1]
    length = 0 if prefix is None else prefix.shape[1]
    causal = torch.ones(size, length + size, dtype=torch.bool).tril(diagonal=length)
    for number, layer in enumerate(layers):
        attention = layer.self_attn
        last = number == len(layers) - 1
        if last:
            before = suffix
        rows = read if last else list(range(size))
        normed = call(layer.input_layernorm, suffix, visual[1])
        k = rotate(heads(call(attention.k_proj, normed, visual[1]), head_size), turns[1])
        v = heads(call(attention.v_proj, normed, visual[1]), head_size)
        if prefix is not None:
            prefix_normed = call(layer.input_layernorm, prefix, visual[0])
            prefix_k = rotate(heads(call(attention.k_proj, prefix_normed, visual[0]), head_size), turns[0])
            prefix_v = heads(call(attention.v_proj, prefix_normed, visual[0]), head_size)
            repeats = len(suffix) // len(prefix)
            k = torch.cat([prefix_k.repeat_interleave(repeats, dim=0), k], dim=2)
            v = torch.cat([prefix_v.repeat_interleave(repeats, dim=0), v], dim=2)
        q = rotate(heads(attention.q_proj(normed[:, rows] if last else normed), head_size), pick(turns[1], rows))
        suffix = suffix[:, rows] + attend(q, k, v, causal[rows], attention.o_proj)
        suffix = suffix + layer.mlp(call(layer.post_attention_layernorm, suffix, visual[1]))
        if prefix is not None and not last:
            q = rotate(heads(attention.q_proj(prefix_normed), head_size), turns[0])
            triangle = torch.ones(length, length, dtype=torch.bool).tril()
            prefix = prefix + attend(q, prefix_k, prefix_v, triangle, attention.o_proj)
            prefix = prefix + layer.mlp(call(layer.post_attention_layernorm, prefix, visual[0]))
    return suffix, before
