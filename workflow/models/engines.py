"""Engines: how the questions of a shard are put to a model.

An engine takes an adapter and questions and gives rows of the logits contract. All engines give the same row;
which one made it is part of a shard's identity.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from PIL import Image

from workflow.lib import logits
from workflow.models import rows
from workflow.models.adapter import Adapter
from workflow.models.rows import Question
from workflow.models.shared_prefix import shared_prefix


def reference(
    adapter: Adapter,
    questions: Sequence[Question],
    open_image: Callable[[str], Image.Image],
    candidates: Sequence[int],
    batch_size: int,
) -> Iterator[list[dict]]:
    """Put every question through ``generate`` with its own image, ``batch_size`` at a time.

    With ``batch_size`` 1 this is how the papers ran. Larger batches are padded on the left; on the CPU in float32
    they move logits by less than 1e-5. A family whose code cannot pad is asked prompts of one length together.

    Yields
    ------
    list of dict
        Rows of one batch, in the order of the questions.
    """
    for start in range(0, len(questions), batch_size):
        batch = questions[start : start + batch_size]
        begun = time.perf_counter()
        # all at once and in order: the engine that draws noise counts on it
        images = [open_image(question.image) for question in batch]
        found: dict[int, dict] = {}
        for places in adapter.together([question.prompt for question in batch]):
            asked = [batch[place] for place in places]
            inputs = adapter.encode([images[place] for place in places], [question.prompt for question in asked])
            generation = adapter.generate(inputs, logits.GENERATED)
            found |= zip(places, rows.stored(adapter, asked, generation, candidates, begun), strict=True)
            begun = time.perf_counter()
        yield [found[place] for place in range(len(batch))]


ENGINES = {"reference": reference, "shared_prefix": shared_prefix}
