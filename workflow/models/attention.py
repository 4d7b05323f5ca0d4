"""Rows of a decoder's attention, taken while the model runs as usual.

An eager run keeps the whole attention of every layer, which no small device holds for long prompts. The signals
need a few rows of it: those of the answer position and of some words. While `recording` is open the decoder's
layers compute their output with the usual kernel and, beside it, the wanted rows as the eager kernel defines them
(softmax in float32 over the masked scores). Those equal the rows of an eager run up to rounding.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from workflow.lib.errors import BadInput
from workflow.models.adapter import Adapter

NAME = "readout_audit_rows"


class Recorder:
    """Attention rows by layer.

    Parameters
    ----------
    rows : Tensor of int64, shape (batch, rows)
        Query positions wanted of each prompt.
    kernel : "sdpa" or "eager"
        What computes the output.
    """

    def __init__(self, rows: torch.Tensor, kernel: str) -> None:
        self.rows = rows
        self.kernel = kernel
        self.by_layer: dict[int, torch.Tensor] = {}

    def maps(self) -> torch.Tensor:
        """Return what was recorded, mean over heads: float32 (layers, batch, rows, positions)."""
        return torch.stack([self.by_layer[layer] for layer in sorted(self.by_layer)])

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor,
        scaling: float,
        **more: object,
    ) -> tuple[torch.Tensor, None]:
        """Run one layer's attention; the signature is that of transformers' attention functions.

        Only the first pass over a prompt is recorded; it is the one in which all positions are queries.
        """
        # the mask is additive here, because an eager one was asked for
        groups = getattr(module, "num_key_value_groups", 1)
        first = module.layer_idx not in self.by_layer
        if self.kernel == "eager":
            weights = _weights(query, repeat_kv(key, groups), attention_mask, scaling)
            output = (weights.to(query.dtype) @ repeat_kv(value, groups)).transpose(1, 2).contiguous()
            if first:
                index = self.rows[:, None, :, None].expand(-1, weights.shape[1], -1, weights.shape[3])
                self.by_layer[module.layer_idx] = weights.gather(2, index).mean(1).cpu()
            return output, None
        if first:
            index = self.rows[:, None, :, None].expand(-1, query.shape[1], -1, query.shape[3])
            mask = attention_mask[:, 0].expand(len(query), -1, -1)
            mask = mask.gather(1, self.rows[:, :, None].expand(-1, -1, mask.shape[2]))[:, None]
            weights = _weights(query.gather(2, index), repeat_kv(key, groups), mask, scaling)
            self.by_layer[module.layer_idx] = weights.mean(1).cpu()
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)


def _weights(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor, scaling: float) -> torch.Tensor:
    return torch.softmax(query @ key.transpose(2, 3) * scaling + mask, dim=-1, dtype=torch.float32)


@contextmanager
def recording(decoder: nn.Module, rows: torch.Tensor) -> Iterator[Recorder]:
    """Record attention rows of the decoder's next pass; its attention kernel is restored in every case.

    Parameters
    ----------
    decoder : Module
        As `decoder_of` returns it.
    rows : Tensor of int64, shape (batch, rows)
    """
    usual = decoder.config._attn_implementation
    recorder = Recorder(rows, "eager" if usual == "eager" else "sdpa")
    AttentionInterface.register(NAME, recorder.attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    decoder.config._attn_implementation = NAME
    try:
        yield recorder
    finally:
        decoder.config._attn_implementation = usual


def decoder_of(adapter: Adapter) -> nn.Module:
    """Return the module that holds the decoder's layers, whatever the family wraps around it."""
    decoder = adapter.model.get_decoder()
    while not hasattr(decoder, "layers"):
        decoder = decoder.get_decoder()
    return decoder


def positions(adapter: Adapter, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the decoder sees at each position of a batch.

    Returns
    -------
    ids : Tensor of int64, shape (batch, positions)
        Token ids on the CPU. An id below 0 stands for the image in the input of one family; here it is repeated as
        often as the image has positions.
    image : Tensor of bool, shape (batch, positions)
        Where the image stands.

    Raises
    ------
    BadInput
        Where a prompt holds no image position.
    """
    rows = []
    for row, count in zip(inputs["input_ids"].tolist(), adapter.image_positions(inputs), strict=True):
        if count < 1:
            raise BadInput("a prompt holds no image position: use a template with the family's image placeholder.")
        rows.append([token for held in row for token in ([held] * count if held < 0 else [held])])
    ids = torch.tensor(rows)
    image_id = getattr(adapter.model.config, "image_token_id", None)
    return ids, (ids < 0) if image_id is None else (ids < 0) | (ids == image_id)


def starts(inputs: Mapping[str, torch.Tensor]) -> list[int]:
    """Return the first position of each prompt that is not padding; prompts are padded on the left."""
    return inputs["attention_mask"].long().argmax(dim=1).tolist()


def band_layers(band: Mapping[str, int] | Sequence[int], depth: int) -> list[int]:
    """Return the layers of the attention band, 0-based.

    Parameters
    ----------
    band : mapping or sequence of int
        ``{first, end, of}``: layers first to end - 1 of a decoder of depth ``of``, scaled to this one, with both
        ends rounded to whole layers (half to even); the layer in the band's middle where that leaves none. The
        paper's band is 14, 20 of 32. Or the layers themselves.
    depth : int
        Layers of this decoder.

    Raises
    ------
    BadInput
        Where the band names no layer or one that the decoder has not.
    """
    if isinstance(band, Mapping):
        first, end = (round(band[name] * depth / band["of"]) for name in ("first", "end"))
        middle = min(int((band["first"] + band["end"]) / 2 * depth / band["of"]), depth - 1)
        layers = list(range(first, end)) or [middle]
    else:
        layers = list(band)
    if not layers or min(layers) < 0 or max(layers) >= depth:
        raise BadInput(
            f"signals.band gives layers {layers} but the decoder has layers 0 to {depth - 1}: name layers that it has."
        )
    return layers
