"""The engine that computes once what the questions about an image have in common.

A family says in `Adapter.open` what that is; the rest of each prompt is then read on top of it, all questions of an
image at once, and so is every further token of their answers. Two layouts do that: side by side in one sequence
under a mask, which copies nothing and pads nothing, or one row a question on a repeated cache, for models whose code
takes no such mask.
"""

import copy
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import torch
from PIL import Image

from workflow.lib import logits
from workflow.lib.errors import BadInput
from workflow.models import rows
from workflow.models.adapter import Adapter, Generation
from workflow.models.opening import Opening
from workflow.models.rows import Question


def shared_prefix(
    adapter: Adapter,
    questions: Sequence[Question],
    open_image: Callable[[Question], Image.Image],
    candidates: Sequence[int],
    batch_size: int,
) -> Iterator[list[dict]]:
    """Put the questions of an image on top of what they share, at most ``batch_size`` of them at a time.

    Questions about one image should follow each other, as in POPE; where they do not, the image is read again. In
    float32 logits are those of the reference to rounding, in 16 bits they differ as two 16-bit runs do.

    Yields
    ------
    list of dict
        Rows of one image, in the order of the questions.

    Raises
    ------
    BadInput
        Where the checkpoint chooses tokens by anything else than raw logits, or prompts do not begin alike.
    """
    returns_prompt = None
    for _, group in itertools.groupby(questions, key=lambda question: question.image):
        asked = list(group)
        if returns_prompt is None:
            returns_prompt = layout(adapter, open_image(asked[0]), asked[0].prompt)
        begun = time.perf_counter()
        image = open_image(asked[0])
        with adapter.shortage_named(min(len(asked), batch_size)):
            generation = answer(adapter, image, [question.prompt for question in asked], batch_size, returns_prompt)
        yield rows.stored(adapter, asked, generation, candidates, begun)


def layout(adapter: Adapter, image: Image.Image, prompt: str) -> bool:
    """Return whether ``generate`` returns the prompt too, by asking one question in the usual way.

    Raises
    ------
    BadInput
        Where a logits processor stood between raw logits and chosen tokens.
    """
    generation = adapter.generate(adapter.encode([image], [prompt]), logits.GENERATED)
    if not generation.raw_choice:
        raise BadInput(
            "the generation settings of this checkpoint change logits before a token is chosen (such as a repetition "
            "penalty), which the engine shared_prefix does not do: set run.engine to reference."
        )
    return generation.returned_prompt


@torch.inference_mode()
def answer(
    adapter: Adapter, image: Image.Image, prompts: Sequence[str], batch_size: int, returns_prompt: bool
) -> Generation:
    """Return greedy answers to prompts about one image, as ``Adapter.generate`` would."""
    opening = adapter.open(image, prompts)
    side_by_side = Packed if adapter.packs else Expanded
    scores: list[torch.Tensor] = []
    new_ids: list[list[int]] = []
    for start in range(0, len(prompts), batch_size):
        rests = opening.rests[start : start + batch_size]
        first, ids = greedy(side_by_side(adapter, opening, rests), adapter.ends, logits.GENERATED)
        scores.append(first)
        new_ids += ids
    returned = [a + b for a, b in zip(opening.prompt_ids, new_ids, strict=True)] if returns_prompt else new_ids
    image_tokens = [opening.image_tokens] * len(prompts)
    return Generation(torch.cat(scores), new_ids, returned, returns_prompt, image_tokens, True)


class Reading(ABC):
    """Questions that are read, and answered, at the same time on top of one opening."""

    @abstractmethod
    def begin(self) -> torch.Tensor:
        """Read what is left of the prompts; next-token logits (questions, vocabulary)."""

    @abstractmethod
    def go_on(self, kept: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """Read one more token of some questions.

        Parameters
        ----------
        kept : sequence of int
            Places of the questions that go on, among those of the last call; the others are dropped.
        tokens : sequence of int
            One token for each of them.

        Returns
        -------
        Tensor
            Next-token logits (kept, vocabulary).
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the cache of the opening as it was."""


def greedy(reading: Reading, ends: set[int], count: int) -> tuple[torch.Tensor, list[list[int]]]:
    """Return logits of the first new token, and up to ``count`` new ids of each question, an end token included."""
    first = scores = reading.begin()
    new_ids: list[list[int]] = [[] for _ in first]
    running = list(range(len(first)))
    while True:
        tokens = scores.argmax(dim=1).tolist()
        for question, token in zip(running, tokens, strict=True):
            new_ids[question].append(token)
        kept = [i for i, token in enumerate(tokens) if token not in ends and len(new_ids[running[i]]) < count]
        if not kept:
            reading.close()
            return first, new_ids
        running = [running[i] for i in kept]
        scores = reading.go_on(kept, [tokens[i] for i in kept])


class Packed(Reading):
    """All questions in one sequence; a mask lets each see the opening and its own tokens only."""

    def __init__(self, adapter: Adapter, opening: Opening, rests: Sequence[torch.Tensor]) -> None:
        self.adapter = adapter
        self.opening = opening
        self.rests = rests
        self.device = adapter.model.device
        # whose each cached position is; -1 is everybody's
        self.owners = torch.full((opening.shared,), -1, device=self.device)
        self.running = torch.arange(len(rests), device=self.device)
        self.next = torch.tensor([opening.position + len(rest) for rest in rests], device=self.device)

    def begin(self) -> torch.Tensor:
        lengths = torch.tensor([len(rest) for rest in self.rests], device=self.device)
        positions = torch.cat([torch.arange(len(rest), device=self.device) for rest in self.rests])
        feed = torch.cat(list(self.rests))[None]
        owners = self.running.repeat_interleave(lengths)
        return self._read(feed, owners, self.opening.position + positions, lengths.cumsum(0) - 1)

    def go_on(self, kept: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        self.running, self.next = self.running[list(kept)], self.next[list(kept)]
        scores = self._read(
            torch.tensor([list(tokens)], device=self.device),
            self.running,
            self.next,
            torch.arange(len(kept), device=self.device),
        )
        self.next = self.next + 1
        return scores

    def close(self) -> None:
        self.opening.cache.crop(self.opening.shared - len(self.owners))

    def _read(
        self, feed: torch.Tensor, owners: torch.Tensor, positions: torch.Tensor, kept: torch.Tensor
    ) -> torch.Tensor:
        self.owners = torch.cat([self.owners, owners])
        places = torch.arange(len(self.owners), device=self.device)
        mine = (self.owners < 0) | (self.owners == owners[:, None])
        seen = mine & (places <= places[-len(owners) :, None])
        dtype = self.adapter.reader.dtype  # the whole model may hold a part in another type
        mask = torch.zeros(seen.shape, dtype=dtype, device=self.device).masked_fill(~seen, torch.finfo(dtype).min)
        return self.adapter.read(feed, self.opening.cache, positions[None], mask[None, None], kept)[0]


class Expanded(Reading):
    """One row a question on a repeated cache; questions of equal length are read together, so nothing is padded."""

    def __init__(self, adapter: Adapter, opening: Opening, rests: Sequence[torch.Tensor]) -> None:
        self.adapter = adapter
        self.rests = rests
        lengths = [len(rest) for rest in rests]
        self.groups = [[i for i, held in enumerate(lengths) if held == length] for length in sorted(set(lengths))]
        self.caches = []
        for group in self.groups:
            cache = copy.deepcopy(opening.cache)
            cache.batch_repeat_interleave(len(group))
            self.caches.append(cache)

    def begin(self) -> torch.Tensor:
        return self._read([torch.stack([self.rests[i] for i in group]) for group in self.groups])

    def go_on(self, kept: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        # a question is known by its place among those of the last call
        token_of = dict(zip(kept, tokens, strict=True))
        place_of = {old: new for new, old in enumerate(kept)}
        groups, caches, feeds = [], [], []
        for group, cache in zip(self.groups, self.caches, strict=True):
            left = [row for row, place in enumerate(group) if place in place_of]
            if not left:
                continue
            if len(left) < len(group):
                cache.batch_select_indices(torch.tensor(left, device=self.adapter.model.device))
            feeds.append(torch.tensor([[token_of[group[row]]] for row in left], device=self.adapter.model.device))
            groups.append([place_of[group[row]] for row in left])
            caches.append(cache)
        self.groups, self.caches = groups, caches
        return self._read(feeds)

    def close(self) -> None:
        self.caches = []

    def _read(self, feeds: Sequence[torch.Tensor]) -> torch.Tensor:
        scores = torch.cat(
            [self.adapter.read(feed, cache)[:, -1] for feed, cache in zip(feeds, self.caches, strict=True)]
        )
        places = [place for group in self.groups for place in group]
        return scores[torch.tensor(places, device=scores.device).argsort()]
