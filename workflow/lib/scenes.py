"""The synthetic polling benchmark of the mini study: scenes of named objects, asked about as POPE asks.

A scene holds three to five objects on a jittered 3 x 3 grid of a 48 x 48 image. Objects have a popularity that
falls with their rank and belong to themes, so that some are frequent and some occur together. The polls follow
the construction of POPE (Li et al. 2023): six questions an image, three about present and three about absent
objects, where the absent ones are drawn at random, by frequency, or by co-occurrence with the present ones.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

NAMES = (
    # one row a popularity tier; the i-th column of a row belongs to theme (i + row) % 6
    *("car", "cup", "apple", "sofa", "horse", "boat"),
    *("clock", "bench", "fork", "book", "umbrella", "duck"),
    *("kite", "lamp", "oven", "egg", "bus", "towel"),
    *("ball", "cow", "plate", "bicycle", "sheep", "orange"),
)
SPLITS = ("adversarial", "popular", "random")
GRID = 3
CELL = 16
SIZE = GRID * CELL
GLYPH = 11
QUESTIONS_PER_IMAGE = 6
SHAPES = ("disc", "square", "triangle", "cross", "ring", "stripes")
COLOURS = np.array([[214, 60, 50], [56, 168, 70], [58, 92, 214], [222, 190, 44]], dtype=np.float32)


@dataclass(frozen=True)
class World:
    """What scenes look like; every field is a key of the configuration.

    Parameters
    ----------
    popularity_exponent
        An object of rank r is drawn with weight 1 / r ** exponent.
    theme_share
        Probability that a further object comes from the scene's theme.
    objects_min, objects_max
        Number of objects in a scene, uniform between both (inclusive). At least three, because three are asked.
    visibility_min
        Opacity of an object, uniform between this and 1.
    pixel_noise
        Standard deviation of the Gaussian pixel noise, in grey levels of 0 to 255.
    """

    popularity_exponent: float = 1.1
    theme_share: float = 0.75
    objects_min: int = 3
    objects_max: int = 5
    visibility_min: float = 0.2
    pixel_noise: float = 34.0

    def __post_init__(self):
        if not 3 <= self.objects_min <= self.objects_max <= GRID * GRID:
            raise ValueError(f"a scene holds 3 to {GRID * GRID} objects, not {self.objects_min} to {self.objects_max}")


@dataclass(frozen=True)
class Scenes:
    """Scenes as arrays: row = scene, column = place in the drawing order; -1 fills unused places."""

    objects: np.ndarray
    cells: np.ndarray
    shifts: np.ndarray
    visibility: np.ndarray

    def __len__(self) -> int:
        return len(self.objects)

    def present(self) -> np.ndarray:
        """Return a boolean array (scene, object)."""
        table = np.zeros((len(self), len(NAMES)), dtype=bool)
        rows, places = np.nonzero(self.objects >= 0)
        table[rows, self.objects[rows, places]] = True
        return table


@dataclass(frozen=True)
class Statistics:
    """Frequency (object,) and co-occurrence (object, object; zero diagonal) counted in training scenes."""

    frequency: np.ndarray
    cooccurrence: np.ndarray


def theme_of(number: np.ndarray | int) -> np.ndarray | int:
    """Return the theme, 0 to 5, of an object number: one object of every popularity tier in each theme."""
    return (number % 6 + number // 6) % 6


def sample_scenes(n: int, rng: np.random.Generator, world: World | None = None) -> Scenes:
    """Draw ``n`` scenes.

    The first object is drawn by popularity within a uniformly drawn theme; each further one from the theme with
    probability ``theme_share``, otherwise from all objects, without replacement. The order is then shuffled.
    """
    world = world or World()
    count = len(NAMES)
    weight = 1.0 / np.arange(1, count + 1) ** world.popularity_exponent
    in_theme = theme_of(np.arange(count))[None] == rng.integers(6, size=n)[:, None]
    theme_size = count // 6
    # Gumbel keys turn "weighted, without replacement" into one argmax a place
    places = world.objects_max
    key = np.log(weight) - np.log(-np.log(rng.random((n, places, count))))
    themed = rng.random((n, places)) < world.theme_share
    themed[:, 0] = True
    objects = np.full((n, places), -1, dtype=np.int64)
    taken = np.zeros((n, count), dtype=bool)
    for place in range(places):
        allowed = ~taken & (in_theme | ~themed[:, place, None] | (place >= theme_size))
        objects[:, place] = np.where(allowed, key[:, place], -np.inf).argmax(1)
        taken[np.arange(n), objects[:, place]] = True
    sizes = rng.integers(world.objects_min, world.objects_max + 1, size=n)
    used = np.arange(places)[None] < sizes[:, None]
    # present ones stay in front, in shuffled order
    order = np.argsort(np.where(used, rng.random((n, places)), 2.0), axis=1, kind="stable")
    objects = np.take_along_axis(np.where(used, objects, -1), order, axis=1)
    cells = np.argsort(rng.random((n, GRID * GRID)), axis=1, kind="stable")[:, :places]
    shifts = rng.integers(0, CELL - GLYPH + 1, size=(n, places, 2))
    visibility = rng.uniform(world.visibility_min, 1.0, size=(n, places))
    return Scenes(objects, cells, shifts, visibility)


def glyph_masks() -> np.ndarray:
    """Return the six shapes as boolean masks (shape, GLYPH, GLYPH)."""
    middle = (GLYPH - 1) / 2
    y, x = np.mgrid[:GLYPH, :GLYPH]
    radius = np.hypot(y - middle, x - middle)
    return np.stack(
        [
            radius <= middle + 0.2,
            np.ones((GLYPH, GLYPH), dtype=bool),
            np.abs(x - middle) <= y / 2,
            (np.abs(x - middle) < 2) | (np.abs(y - middle) < 2),
            (radius <= middle + 0.2) & (radius >= middle - 2.2),
            y % 4 < 2,
        ]
    )


def render(scenes: Scenes, rng: np.random.Generator, world: World | None = None) -> np.ndarray:
    """Return the images of scenes as uint8 (scene, 48, 48, 3).

    An object is a shape in a colour, blended with the grey background by its visibility; no two objects share
    both. Gaussian noise is added to every pixel and channel.
    """
    world = world or World()
    n = len(scenes)
    images = np.full((n, SIZE, SIZE, 3), 112.0, dtype=np.float32)
    masks = glyph_masks()
    span = np.arange(GLYPH)
    for place in range(scenes.objects.shape[1]):
        rows = np.flatnonzero(scenes.objects[:, place] >= 0)
        number = scenes.objects[rows, place]
        shape, colour = number % 6, (3 * (number // 6) + number % 6) % 4
        top = scenes.cells[rows, place] // GRID * CELL + scenes.shifts[rows, place, 0]
        left = scenes.cells[rows, place] % GRID * CELL + scenes.shifts[rows, place, 1]
        index = (rows[:, None, None], (top[:, None] + span)[:, :, None], (left[:, None] + span)[:, None, :])
        alpha = (masks[shape] * scenes.visibility[rows, place, None, None])[..., None].astype(np.float32)
        images[index] = (1 - alpha) * images[index] + alpha * COLOURS[colour][:, None, None]
    images += np.float32(world.pixel_noise) * rng.standard_normal(images.shape, dtype=np.float32)
    return np.rint(images.clip(0, 255)).astype(np.uint8)


def measure(scenes: Scenes) -> Statistics:
    """Count how often each object occurs and how often two occur together."""
    present = scenes.present().astype(np.int64)
    together = present.T @ present
    frequency = np.diagonal(together).copy()
    np.fill_diagonal(together, 0)
    return Statistics(frequency, together)


def test_scenes(n: int, seed: int, world: World) -> tuple[Scenes, np.random.Generator]:
    """Return the scenes that are asked about and the generator that goes on to render and poll them."""
    rng = np.random.default_rng([seed, 3])
    return sample_scenes(n, rng, world), rng


def training_statistics(n: int, seed: int, world: World) -> Statistics:
    """Return the counts of ``n`` scenes of the same world, none of which is asked about."""
    return measure(sample_scenes(n, np.random.default_rng([seed, 4]), world))


def image_name(number: int) -> str:
    """Return the file name of the scene with this number, in the fashion of COCO's names."""
    return f"SCENE_{number:012d}.png"


def question(name: str) -> str:
    """Return POPE's question about an object."""
    article = "an" if name[0] in "aeiou" else "a"
    return f"Is there {article} {name} in the image?"


def positives(scenes: Scenes) -> np.ndarray:
    """Return the three present objects asked about in each scene: the first three in drawing order."""
    return scenes.objects[:, : QUESTIONS_PER_IMAGE // 2]


def negatives(scenes: Scenes, statistics: Statistics, split: str, rng: np.random.Generator) -> np.ndarray:
    """Return three distinct absent objects a scene, chosen as the split asks.

    random: uniformly; popular: the three most frequent absent ones; adversarial: for each object asked about,
    in order, the absent one that occurs with it most often and is not yet taken. Ties: the smaller object number.
    """
    if split not in SPLITS:
        raise ValueError(f"no such split: {split!r}; there are {', '.join(SPLITS)}")
    present = scenes.present()
    wanted = QUESTIONS_PER_IMAGE // 2
    if split == "random":
        score = np.where(present, -1.0, rng.random(present.shape))
        return np.argsort(-score, axis=1, kind="stable")[:, :wanted]
    if split == "popular":
        score = np.where(present, -1, statistics.frequency)
        return np.argsort(-score, axis=1, kind="stable")[:, :wanted]
    taken = present.copy()
    chosen = np.empty((len(scenes), wanted), dtype=np.int64)
    for place, asked in enumerate(positives(scenes).T):
        chosen[:, place] = np.where(taken, -1, statistics.cooccurrence[asked]).argmax(1)
        taken[np.arange(len(scenes)), chosen[:, place]] = True
    return chosen


def poll(scenes: Scenes, statistics: Statistics, split: str, rng: np.random.Generator) -> list[dict]:
    """Return the questions of one split in POPE's own layout.

    Labels alternate yes, no, yes, ...; the positives do not depend on the split. ``rng`` is used by the random
    split alone.
    """
    asked = np.stack([positives(scenes), negatives(scenes, statistics, split, rng)], axis=2).reshape(len(scenes), -1)
    rows = []
    for scene, numbers in enumerate(asked, start=1):
        for place, number in enumerate(numbers):
            rows.append(
                {
                    "question_id": len(rows) + 1,
                    "image": image_name(scene),
                    "text": question(NAMES[number]),
                    "label": "no" if place % 2 else "yes",
                }
            )
    return rows


def json_lines(rows: Iterable[dict]) -> str:
    """Return rows as JSON lines, one object a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)
