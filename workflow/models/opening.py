"""What several prompts about one image have in common, once it is computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from workflow.lib.errors import BadInput

if TYPE_CHECKING:
    from transformers import DynamicCache


@dataclass(frozen=True)
class Opening:
    """Prompts about one image, with what they have in common computed.

    Attributes
    ----------
    prompt_ids : list of list of int
        Ids of each prompt as ``encode`` gives them, without padding.
    image_tokens : int
        How many positions of each prompt hold the image.
    cache : Cache
        Keys and values of the common positions.
    shared : int
        How many positions those are in the decoder; 0 where only image features are shared.
    position : int
        Position index of the first token behind them.
    rests : list of Tensor
        What the decoder has still to read of each prompt, at least one position: ids (length,) or embeddings
        (length, width).
    """

    prompt_ids: list[list[int]]
    image_tokens: int
    cache: "DynamicCache"
    shared: int
    position: int
    rests: list[torch.Tensor]


def common_length(prompt_ids: Sequence[Sequence[int]], image_ends: int) -> int:
    """Return how many leading ids prompts have in common, leaving at least one id of each.

    Ids are compared, never strings: where texts part, the tokens around that place may differ as well.

    Parameters
    ----------
    image_ends : int
        Index behind the last id that stands for the image.

    Raises
    ------
    BadInput
        Where the prompts part before the image ends.
    """
    limit = min(map(len, prompt_ids)) - 1
    shared = next((i for i in range(limit) if len({ids[i] for ids in prompt_ids}) > 1), limit)
    if shared < image_ends:
        raise BadInput(
            "prompts about one image part before the image, so nothing can be shared between them: use a template with "
            "the question behind the image, or set run.engine to reference."
        )
    return shared
