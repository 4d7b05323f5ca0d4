"""Rows of the logits contract, made from what a model generated; every engine ends here."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workflow.lib import logits, prompts
from workflow.models.adapter import Adapter, Generation


@dataclass(frozen=True)
class Question:
    """One item as an engine sees it: its key, its image and its rendered prompt."""

    dataset: str
    split: str
    id: int
    image: str
    prompt: str


def stored(
    adapter: Adapter, questions: Sequence[Question], generation: Generation, candidates: Sequence[int], begun: float
) -> list[dict]:
    """Return one row a question.

    Parameters
    ----------
    generation : Generation
        One entry a question, in their order.
    candidates : sequence of int
        Declared ids, ascending.
    begun : float
        When work on these questions began, by ``time.perf_counter``; each is put down for an equal share.
    """
    columns = distribution(generation.logits, candidates)
    seconds = (time.perf_counter() - begun) / len(questions)
    return [
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
        for row, question in enumerate(questions)
    ]


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
