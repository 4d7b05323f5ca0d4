"""Signals of the instrumented pass: what the audited model's attention and logits show at one question.

One greedy token is generated as in the main run, with rows of the decoder's attention taken on the way. Signals are
those of the first paper's Appendix F, as its released code has them; where its text says something else, a second
column ending in ``_paper`` follows the text. Answers come later, as readouts of what is stored here.

From attention rows, for the image positions (N of them), a distribution p over them and its entropy H:

=========================  ==========================================================================================
attention                  sum over image positions of the answer position's attention, mean over heads and the band
entropy_certainty          1 - H / log N of the attention from spatial words ("in" is one), all heads and layers
object_noun_certainty      the same from the noun's tokens
magnitude_certainty        mean attention from spatial words over ten times 1 / N, at most 1
cls_certainty              1 - H / log N of the attention from the first position
midpoint_certainty         1 - H / log N of the answer position's attention, all heads, the band's layers
=========================  ==========================================================================================

From the logits of the answer position:

=========================  ==========================================================================================
entropy_certainty_paper    1 - entropy of the token distribution / log of the vocabulary size
magnitude_certainty_paper  probability of the best yes form
=========================  ==========================================================================================

A prompt without a spatial word has entropy and magnitude certainty 0, one without a token of the noun has object-noun
certainty 0.5, as in the released code. No attention to the image at all has H = 0, so certainty 1: this is so for
``cls_certainty`` of every causal decoder whose image stands after its first position, because that position sees
nothing but itself. The gate keyed on it then changes no answer.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from workflow.lib import nouns, signal_parts
from workflow.lib.items import KEY
from workflow.lib.tokens import TokenSet
from workflow.models import attention, images, subject
from workflow.models.adapter import Adapter, Generation

WITHOUT_WORD = 0.0
WITHOUT_NOUN = 0.5


def concentration(weights: np.ndarray) -> float:
    """Return 1 - H / log N of attention over N positions, from 0 (even) to 1 (all on one).

    Parameters
    ----------
    weights : ndarray, shape (N,)
        Attention, not negative, of any total. Nothing at all gives 1, and so does a single position.
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum()
    if total <= 0 or len(weights) < 2:
        return 1.0
    share = weights / total
    # a tiny weight may vanish in the division
    share = share[share > 0]
    entropy = -(share * np.log(share)).sum()
    return float(np.clip(1 - entropy / np.log(len(weights)), 0.0, 1.0))


def distribution_certainty(logits: torch.Tensor) -> np.ndarray:
    """Return 1 - H / log V of next-token distributions: (batch, V) raw logits to float64 (batch,)."""
    logs = torch.log_softmax(logits.double(), dim=1)
    entropy = -(logs.exp() * logs).sum(dim=1)
    return (1 - entropy / np.log(logits.shape[1])).clamp(0, 1).cpu().numpy()


def wanted_rows(
    adapter: Adapter, inputs: Mapping[str, torch.Tensor], questions: Sequence[str], settings: Mapping
) -> tuple[torch.Tensor, list[dict[str, list[int]]], list[list[int]]]:
    """Find the query rows that signals need, and the image columns.

    Returns
    -------
    rows : Tensor of int64, shape (batch, rows)
        Positions in the decoder's input; short lists are filled up with the last position.
    places : list of dict
        By prompt: which of its rows are "first", "last", "spatial" and "noun".
    columns : list of list of int
        By prompt: image positions. With ``image_span`` "as_run" the slice from the second position on that the
        released code took, which begins before the image where text stands in front of it.
    """
    ids, image = attention.positions(adapter, inputs)
    lists, places, columns = [], [], []
    for number, (row, start) in enumerate(zip(ids.tolist(), attention.starts(inputs), strict=True)):
        visual = image[number].nonzero()[:, 0].tolist()
        pieces = [
            "" if seen or position < start else adapter.tokenizer.convert_ids_to_tokens(token)
            for position, (token, seen) in enumerate(zip(row, image[number].tolist(), strict=True))
        ]
        spatial = nouns.places(pieces, settings["spatial_words"])
        named = nouns.places(pieces, nouns.attended(questions[number], settings["nouns"]))
        lists.append([start, len(row) - 1, *spatial, *named])
        places.append(
            {
                "first": [0],
                "last": [1],
                "spatial": list(range(2, 2 + len(spatial))),
                "noun": list(range(2 + len(spatial), len(lists[-1]))),
            }
        )
        shifted = [start + 1 + offset for offset in range(len(visual))]
        columns.append(visual if settings["image_span"] == "image" else shifted)
    longest = max(len(rows) for rows in lists)
    filled = [rows + [ids.shape[1] - 1] * (longest - len(rows)) for rows in lists]
    return torch.tensor(filled, device=adapter.model.device), places, columns


def from_attention(maps: np.ndarray, places: Mapping[str, Sequence[int]], band: Sequence[int]) -> dict[str, float]:
    """Return the attention signals of one prompt.

    Parameters
    ----------
    maps : ndarray, shape (layers, rows, N)
        Attention, mean over heads, from the wanted rows to the N image positions.
    places : mapping
        Rows by what they stand for; see `wanted_rows`.
    band : sequence of int
        Layers of the band.
    """
    maps = np.asarray(maps, np.float64)
    count = maps.shape[2]

    def spread(rows: Sequence[int]) -> np.ndarray:
        return maps[:, rows].mean(axis=(0, 1))

    answer = maps[list(band), places["last"][0]].mean(axis=0)
    spatial, noun = places["spatial"], places["noun"]
    return {
        # float sums of a softmax may pass 1 by a rounding error
        "attention": float(min(answer.sum(), 1.0)),
        "entropy_certainty": concentration(spread(spatial)) if spatial else WITHOUT_WORD,
        "object_noun_certainty": concentration(spread(noun)) if noun else WITHOUT_NOUN,
        "magnitude_certainty": float(min(spread(spatial).mean() / (10 / count), 1.0)) if spatial else WITHOUT_WORD,
        "cls_certainty": concentration(spread(places["first"])),
        "midpoint_certainty": concentration(answer),
    }


def from_logits(logits: torch.Tensor, token_set: TokenSet) -> dict[str, np.ndarray]:
    """Return the signals that answer-position logits give; (batch, vocabulary) raw logits, float32."""
    yes, no = (logits[:, list(ids)].amax(dim=1) for ids in (token_set.yes, token_set.no))
    share = (yes.double() - torch.logsumexp(logits.double(), dim=1)).exp().clamp(0, 1)
    return {
        "yes_max": yes.cpu().numpy(),
        "no_max": no.cpu().numpy(),
        "entropy_certainty_paper": distribution_certainty(logits),
        "magnitude_certainty_paper": share.cpu().numpy(),
    }


def measure(
    adapter: Adapter, inputs: dict[str, torch.Tensor], questions: Sequence[str], settings: Mapping, token_set: TokenSet
) -> tuple[list[dict[str, float]], Generation]:
    """Return the signals of a batch, one dict a question, and what was generated.

    Parameters
    ----------
    adapter : Adapter
    inputs : dict
        As ``adapter.encode`` returns them.
    questions : sequence of str
        The polls themselves, without template.
    settings : mapping
        Of the section ``signals``: band, image_span, nouns, spatial_words.
    token_set : TokenSet
        What the baseline reads.
    """
    rows, places, columns = wanted_rows(adapter, inputs, questions, settings)
    decoder = attention.decoder_of(adapter)
    with attention.recording(decoder, rows) as recorder:
        generation = adapter.generate(inputs, 1)
    maps = recorder.maps().numpy()
    band = attention.band_layers(settings["band"], len(maps))
    found = from_logits(generation.logits, token_set)
    measured = []
    for number in range(len(questions)):
        held = from_attention(maps[:, number][:, :, columns[number]], places[number], band)
        measured.append(held | {name: float(values[number]) for name, values in found.items()})
    return measured, generation


def infer(
    questions: str, image_table: str, checkpoint: str, out: str, *, shard: int, signals: Mapping, **conditions: object
) -> None:
    """Measure the questions of one shard and write them as a part of the signals table.

    Parameters
    ----------
    questions, image_table, checkpoint, out : str
        As for `workflow.models.shard.infer`.
    shard : int
    signals : mapping
        Of the section ``signals``: band, image_span, nouns, spatial_words.
    conditions
        model, settings, run, study, seed, code; see `workflow.models.subject.load`.
    """
    held = subject.load(questions, image_table, checkpoint, shard_number=shard, **conditions)
    adapter, rows = held.adapter, held.table.to_pylist()
    name, token_set = subject.baseline_set(adapter)
    depth = len(attention.decoder_of(adapter).layers)
    layers = attention.band_layers(signals["band"], depth)
    found: dict[int, dict] = {}
    prompts = [adapter.render(held.template, row["question"]) for row in rows]
    batches = adapter.batches(prompts, conditions["run"]["batch_size"])
    for places in tqdm(batches, unit="batch", desc="signals", mininterval=2):
        opened = [images.open_image(held.images / rows[place]["image"]) for place in places]
        asked = [rows[place]["question"] for place in places]
        with adapter.shortage_named(len(places)):
            inputs = adapter.encode(opened, [prompts[place] for place in places])
            measured, _ = measure(adapter, inputs, asked, signals, token_set)
        found |= zip(places, measured, strict=True)
    measured_rows = [{key: row[key] for key in KEY} | found[place] for place, row in enumerate(rows)]
    columns = [*KEY, "yes_max", "no_max", *signal_parts.ATTENTION]
    frame = pd.DataFrame(measured_rows, columns=columns).astype({column: np.float32 for column in columns[len(KEY) :]})
    identity = held.identity | {
        "kind": "signals",
        "shard": shard,
        "shards": conditions["run"]["shards"],
        "measured": {
            "token_set": name,
            "ids": {"yes": list(token_set.yes), "no": list(token_set.no)},
            "layers": layers,
            "depth": depth,
            **{key: signals[key] for key in ("band", "image_span", "nouns", "spatial_words")},
        },
    }
    signal_parts.save(frame, out, identity)
