"""Engines: how the questions of a shard are put to a model.

An engine takes an adapter and questions and gives rows of the logits contract. All engines give the same row;
which one made it is part of a shard's identity.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from workflow.lib import logits, prompts
from workflow.models.adapter import Adapter


@dataclass(frozen=True)
class Question:
    """One item as an engine sees it: its key, its image and its rendered prompt."""

    dataset: str
    split: str
    id: int
    image: str
    prompt: str


def reference(
    adapter: Adapter,
    questions: Sequence[Question],
    open_image: Callable[[str], Image.Image],
    candidates: Sequence[int],
    batch_size: int,
) -> Iterator[list[dict]]:
    """Put every question through ``generate`` with its own image, ``batch_size`` at a time.

    With ``batch_size`` 1 this is how the papers ran. Larger batches are padded on the left; on the CPU in float32
    they move logits by less than 1e-5.

    Yields
    ------
    list of dict
        Rows of one batch, in the order of the questions.
    """
    for start in range(0, len(questions), batch_size):
        batch = questions[start : start + batch_size]
        begun = time.perf_counter()
        images = [open_image(question.image) for question in batch]
        inputs = adapter.encode(images, [question.prompt for question in batch])
        generation = adapter.generate(inputs, logits.GENERATED)
        columns = distribution(generation.logits, candidates)
        seconds = (time.perf_counter() - begun) / len(batch)
        yield [
            {
                "dataset": question.dataset,
                "split": question.split,
                "id": question.id,
                "image": question.image,
                "prompt_sha256": prompts.digest(question.prompt),
                "image_tokens": generation.image_tokens[row],
                "argmax_text": adapter.decode([columns["argmax_id"][row]]),
                "generated_ids": generation.new_ids[row],
                "generated_text": adapter.decode(generation.new_ids[row]),
                "returned_text": adapter.decode(generation.returned_ids[row]),
                "returned_prompt": generation.returned_prompt,
                "seconds": seconds,
                **{name: values[row] for name, values in columns.items()},
            }
            for row, question in enumerate(batch)
        ]


ENGINES = {"reference": reference}


def distribution(scores: torch.Tensor, candidates: Sequence[int]) -> dict[str, np.ndarray]:
    """Reduce next-token logits to the columns that are stored.

    Parameters
    ----------
    scores : Tensor
        Raw logits, float32, shape (batch, vocabulary).
    candidates : sequence of int
        Declared ids, ascending, all below the vocabulary size.

    Returns
    -------
    dict of ndarray
        argmax_id, logsumexp, logit_<id>, rank_<id>, top_ids, top_logits. A rank is 1 plus the number of strictly
        larger logits, so tied ids share the better rank; among tied top ids the lower one stands first, as greedy
        decoding would choose.
    """
    values, indices = scores.topk(logits.TOP, dim=1)
    values, indices = values.cpu().numpy(), indices.cpu().numpy()
    stable = np.lexsort((indices, -values), axis=1)
    values, indices = np.take_along_axis(values, stable, 1), np.take_along_axis(indices, stable, 1)
    vocabulary = scores.cpu().numpy()
    chosen = vocabulary[:, list(candidates)]
    # row by row stays in cache; one comparison of the whole batch is several times slower
    ranks = np.array(
        [[1 + np.count_nonzero(row > logit) for logit in held] for row, held in zip(vocabulary, chosen, strict=True)]
    )
    columns = {
        "argmax_id": indices[:, 0],
        "logsumexp": torch.logsumexp(scores, dim=1).cpu().numpy(),
        "top_ids": indices,
        "top_logits": values,
    }
    for column, token in enumerate(candidates):
        columns[f"logit_{token}"] = chosen[:, column]
        columns[f"rank_{token}"] = ranks[:, column]
    return columns
