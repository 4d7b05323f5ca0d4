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
    open_image: Callable[[Question], Image.Image],
    candidates: Sequence[int],
    batch_size: int,
) -> Iterator[list[dict]]:
    """Put every question through ``generate`` with its own image, ``batch_size`` at a time.

    With ``batch_size`` 1 this is how the papers ran. Larger batches are padded on the left; on the CPU in float32
    they move logits by less than 1e-5. A family whose code cannot pad reads prompts of one length together.

    Yields
    ------
    list of dict
        Rows of one batch; batches need not follow the order of the questions.
    """
    for places in adapter.batches([question.prompt for question in questions], batch_size):
        batch = [questions[place] for place in places]
        begun = time.perf_counter()
        inputs = adapter.encode(list(map(open_image, batch)), [question.prompt for question in batch])
        generation = adapter.generate(inputs, logits.GENERATED)
        yield rows.stored(adapter, batch, generation, candidates, begun)


ENGINES = {"reference": reference, "shared_prefix": shared_prefix}
