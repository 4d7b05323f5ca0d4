"""Training material: scenes, questions about them, and prompts as token rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from workflow.lib import scenes

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
ASKED = scenes.QUESTIONS_PER_IMAGE


@dataclass
class Lessons:
    """Training scenes with normalised pixels (scene, 3, 48, 48) and presence (scene, object)."""

    scenes: scenes.Scenes
    pixels: torch.Tensor
    present: torch.Tensor

    def __len__(self) -> int:
        return len(self.pixels)


def normalise(images: np.ndarray) -> torch.Tensor:
    """Return uint8 images (n, height, width, 3) as CLIP's image processor does: rescaled, normalised, channels first.

    The arithmetic order is the processor's own, so that the pixel values agree to the last bit.
    """
    scaled = (images.astype(np.float64) * (1 / 255)).astype(np.float32)
    normal = (scaled - np.asarray(CLIP_MEAN, dtype=np.float32)) / np.asarray(CLIP_STD, dtype=np.float32)
    return torch.from_numpy(np.ascontiguousarray(normal.transpose(0, 3, 1, 2)))


def sample(n: int, seed: int | list[int], world: scenes.World) -> Lessons:
    """Draw and render ``n`` training scenes."""
    rng = np.random.default_rng(seed)
    drawn = scenes.sample_scenes(n, rng, world)
    pixels = normalise(scenes.render(drawn, rng, world))
    return Lessons(drawn, pixels, torch.from_numpy(drawn.present()))


def ask(present: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return six objects a scene, three present and three absent drawn at random, and whether each is present."""
    key = torch.rand(present.shape, generator=generator)
    half = ASKED // 2
    there = torch.where(present, key, -1.0).topk(half, dim=1).indices
    absent = torch.where(present, -1.0, key).topk(half, dim=1).indices
    objects = torch.cat([there, absent], dim=1)
    return objects, present.gather(1, objects)


@dataclass(frozen=True)
class Prompt:
    """One template with every object's name, as token ids.

    Attributes
    ----------
    shared : Tensor
        Ids (P,) before the first token in which two objects' prompts differ.
    own : Tensor
        Ids (object, S) from there on, without an answer.
    place : int
        Position of the object's name in ``own``.
    """

    shared: torch.Tensor
    own: torch.Tensor
    place: int


def prompt(encode: Callable[[str], list[int]], render: Callable[[str], str]) -> Prompt:
    """Tokenise one template for all objects.

    Raises
    ------
    ValueError
        Where the prompts are not equally long, which the training relies on.
    """
    rows = [encode(render(scenes.question(name))) for name in scenes.NAMES]
    if len({len(row) for row in rows}) != 1:
        raise ValueError("prompts about different objects differ in length; every name must be one token")
    ids = torch.tensor(rows)
    distinct = [len(column.unique()) for column in ids.T]
    place = distinct.index(len(scenes.NAMES))
    start = min(position for position, count in enumerate(distinct) if count > 1)
    return Prompt(ids[0, :start], ids[:, start:], place - start)
