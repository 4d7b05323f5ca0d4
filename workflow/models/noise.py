"""The second pass of contrastive decoding: the same questions, with noise in place of the image.

Two kinds: "random_image", what the released code ran (an image of uniformly random pixels, of the size that the
model takes), and "gaussian_embedding", what the paper's text says (Gaussian noise added to the image's embeddings
in the decoder's input). The released code drew without a seed; here every question has a draw of its own, made from
a recorded seed and its key, so that it depends on no other question, batch or shard.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from PIL import Image

from workflow.lib import signal_parts
from workflow.lib.errors import BadInput
from workflow.models import attention, engines, shard
from workflow.models.adapter import Adapter, Generation
from workflow.models.engines import Question


def draw(seed: int, question: Question) -> np.random.Generator:
    """Return the generator of one question."""
    key = f"{question.dataset}/{question.split}/{question.id}".encode()
    return np.random.default_rng([seed, int.from_bytes(hashlib.sha256(key).digest()[:8], "big")])


def input_size(adapter: Adapter, picture: Image.Image) -> tuple[int, int]:
    """Return height and width that the model's image processor makes of any image; for a family that keeps the
    size of its images, those of ``picture``."""
    processor = getattr(adapter, "image_processor", None) or adapter.processor.image_processor
    for name in ("crop_size", "size"):
        size = getattr(processor, name, None) or {}
        size = dict(size.items()) if hasattr(size, "items") else dict(size)
        if size.get("height") and size.get("width"):
            return size["height"], size["width"]
    return picture.height, picture.width


def random_image(
    adapter: Adapter,
    questions: Sequence[Question],
    open_image: Callable[[Question], Image.Image],
    candidates: Sequence[int],
    batch_size: int,
    settings: Mapping,
) -> Iterator[list[dict]]:
    """Engine: the reference with an image of uniformly random pixels for every question."""

    def picture(question: Question) -> Image.Image:
        height, width = input_size(adapter, open_image(question))
        pixels = draw(settings["seed"], question).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return Image.fromarray(pixels)

    yield from engines.reference(adapter, questions, picture, candidates, batch_size)


def gaussian_embedding(
    adapter: Adapter,
    questions: Sequence[Question],
    open_image: Callable[[Question], Image.Image],
    candidates: Sequence[int],
    batch_size: int,
    settings: Mapping,
) -> Iterator[list[dict]]:
    """Engine: the reference with Gaussian noise on the image's embeddings.

    The paper gives no strength. ``scale`` is the standard deviation of the noise in units of the standard deviation
    of the image's own embeddings.
    """
    for places in adapter.batches([question.prompt for question in questions], batch_size):
        batch = [questions[place] for place in places]
        noisy = NoisyAdapter(adapter, batch, settings)
        yield from engines.reference(noisy, batch, open_image, candidates, batch_size)


class NoisyAdapter:
    """An adapter whose decoder gets noisy image embeddings in the first pass of each generation."""

    def __init__(self, adapter: Adapter, questions: Sequence[Question], settings: Mapping) -> None:
        self.adapter = adapter
        self.questions = questions
        self.settings = settings

    def __getattr__(self, name: str) -> object:
        return getattr(self.adapter, name)

    def generate(self, inputs: dict[str, torch.Tensor], count: int) -> Generation:
        _, image = attention.positions(self.adapter, inputs)

        def perturb(_module: torch.nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
            embeddings = keywords.get("inputs_embeds")
            # only the first pass reads the prompt
            if embeddings is None or embeddings.shape[1] != image.shape[1]:
                return arguments, keywords
            embeddings = embeddings.clone()
            for row, question in enumerate(self.questions):
                seen = embeddings[row, image[row]]
                noise = draw(self.settings["seed"], question).standard_normal(tuple(seen.shape), dtype=np.float32)
                noise = torch.from_numpy(noise).to(seen.device, seen.dtype)
                embeddings[row, image[row]] = seen + self.settings["scale"] * seen.std() * noise
            return arguments, keywords | {"inputs_embeds": embeddings}

        hook = attention.decoder_of(self.adapter).register_forward_pre_hook(perturb, with_kwargs=True)
        try:
            return self.adapter.generate(inputs, count)
        finally:
            hook.remove()


KINDS = {"random_image": random_image, "gaussian_embedding": gaussian_embedding}


def infer(*arguments: str, kind: str, noise: Mapping, run: Mapping, **conditions: object) -> None:
    """Run one shard of a noise pass; it is stored like a shard of the main run, under an engine name of its own.

    Parameters
    ----------
    arguments, conditions
        As for `workflow.models.shard.infer`.
    kind : str
        One of `KINDS`.
    noise : mapping
        seed and scale, of ``signals.noise``.
    run : mapping
        As there; its engine is replaced.
    """
    if kind not in KINDS or kind not in signal_parts.NOISES:
        raise BadInput(f"noise {kind!r} is not known: use one of {', '.join(KINDS)}.")
    name = signal_parts.noise_engine(kind, noise)
    engines.ENGINES[name] = partial(KINDS[kind], settings=noise)
    try:
        shard.infer(*arguments, kind="noise", noise=kind, run=dict(run) | {"engine": name}, **conditions)
    finally:
        del engines.ENGINES[name]
