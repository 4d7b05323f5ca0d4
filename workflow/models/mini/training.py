"""Training loops that the base and the five checkpoints share."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional
from tqdm import tqdm

from workflow.models.mini.decoder import Rotation
from workflow.models.mini.lessons import Lessons
from workflow.models.mini.vocabulary import Vocabulary


@dataclass
class Record:
    """What a training stage reports: last loss (mean of the last tenth of the steps) and steps."""

    losses: list[float] = field(default_factory=list)

    def loss(self) -> float:
        """Return the mean loss over the last tenth of the steps."""
        tail = self.losses[-max(1, len(self.losses) // 10) :]
        return sum(tail) / len(tail)


def deterministic(seed: int) -> torch.Generator:
    """Fix seeds, one thread and deterministic kernels; return a generator for the order of lessons."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # no kernel here reads memory that it has not written, so filling it first only costs time
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def batches(count: int, size: int, steps: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Give ``steps`` batches of row numbers, every row once before any row twice."""
    order = torch.empty(0, dtype=torch.long)
    for _ in range(steps):
        while len(order) < size:
            order = torch.cat([order, torch.randperm(count, generator=generator)])
        yield order[:size]
        order = order[size:]


def optimise(
    loss: Callable[[torch.Tensor], torch.Tensor],
    parameters: list[nn.Parameter],
    order: Iterator[torch.Tensor],
    steps: int,
    rate: float,
    title: str,
) -> Record:
    """Minimise ``loss(batch of row numbers)`` with AdamW under a one-cycle rate; progress goes to stderr."""
    record = Record()
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimiser = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.01, foreach=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps + 1, pct_start=0.15)
    for rows in tqdm(order, total=steps, desc=title, mininterval=1.0):
        value = loss(rows)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        record.losses.append(value.item())
    if not math.isfinite(record.loss()):
        raise FloatingPointError(f"{title}: the loss is not finite; lower the learning rate in the configuration")
    return record


class Alignment(nn.Module):
    """Score of each object in an image: its word against every projected patch, the best patch counting most."""

    def __init__(self, objects: int):
        super().__init__()
        self.bias = nn.Parameter(torch.full((objects,), -3.0))

    def forward(self, patches: torch.Tensor, words: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Return the loss for patches (image, patch, width), words (object, width), present (image, object)."""
        score = torch.logsumexp(patches @ words.T + self.bias, dim=1)
        return functional.binary_cross_entropy_with_logits(score, present.float())


def align(
    tower: Callable[[torch.Tensor], torch.Tensor],
    words: Callable[[], torch.Tensor],
    parameters: list[nn.Parameter],
    lessons: Lessons,
    settings: dict,
    generator: torch.Generator,
    title: str,
) -> Record:
    """Train a vision tower and its connector to speak the decoder's words.

    Parameters
    ----------
    tower
        Pixels -> projected patches (image, patch, width).
    words
        The decoder's input rows of the objects' names (object, width), read anew at every step.
    settings
        batch, steps, rate.
    """
    aid = Alignment(lessons.present.shape[1])
    order = batches(len(lessons), settings["batch"], settings["steps"], generator)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return aid(tower(lessons.pixels[rows]), words(), lessons.present[rows])

    return optimise(loss, [*parameters, *aid.parameters()], order, settings["steps"], settings["rate"], title)


@dataclass(frozen=True)
class Answers:
    """What is learned at the answer: a distribution over surface forms, then the end token.

    Attributes
    ----------
    targets : Tensor
        (2, rows): row 0 for "no", row 1 for "yes"; the shares of the surface forms in the training answers.
    house : Tensor
        (2,) compact rows of the most frequent form of "no" and of "yes", which stand in the input before the end.
    end : int
        Compact row of the end token.
    """

    targets: torch.Tensor
    house: torch.Tensor
    end: int


def answers(vocabulary: Vocabulary, forms: dict[str, int], planted: dict, end: int) -> Answers:
    """Read the planted answer distribution, e.g. ``{"yes": {" Yes": 0.95, "yes": 0.05}, "no": {...}}``."""
    targets = torch.zeros(2, len(vocabulary.ids) + 1)
    for number, label in enumerate(("no", "yes")):
        shares = planted[label]
        total = sum(shares.values())
        for form, share in shares.items():
            targets[number, vocabulary.row(forms[form])] = share / total
    return Answers(targets, targets.argmax(1), vocabulary.row(end))


class Reading(nn.Module):
    """The loss at the answer: next-token cross-entropy there and at the end token, and a throw-away aid.

    The aid asks whether the object is present of the state at its name before the last layer. It is dropped
    after training; without it the decoder stays at the prior for a time that depends on the seed.
    """

    def __init__(self, width: int, vocabulary: Vocabulary, known: Answers):
        super().__init__()
        self.aid = nn.Linear(width, 1)
        self.known = known
        offset = torch.zeros(len(vocabulary.ids) + 1)
        offset[vocabulary.filler] = vocabulary.log_filler()
        self.register_buffer("offset", offset)

    def forward(
        self, states: torch.Tensor, at_name: torch.Tensor, head: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss; ``states`` (question, 2, width) are normed, ``labels`` (question,) booleans."""
        logs = functional.log_softmax(states @ head.T + self.offset, dim=-1)
        answer = -(self.known.targets[labels.long()] * logs[:, 0]).sum(1).mean()
        end = -logs[:, 1, self.known.end].mean()
        aid = functional.binary_cross_entropy_with_logits(self.aid(at_name)[:, 0], labels.float())
        return answer + 0.2 * end + aid


@dataclass(frozen=True)
class Lesson:
    """One template in compact rows, with the rotations of its positions.

    Attributes
    ----------
    shared, own : Tensor
        Rows of the prefix (P,) and of the part of each object (object, S).
    image : Tensor
        Which prefix positions hold the image (P,).
    place : int
        Position of the name in ``own``.
    turns : tuple
        Rotations of prefix and of suffix with one answer token.
    """

    shared: torch.Tensor
    own: torch.Tensor
    image: torch.Tensor
    place: int
    turns: tuple[Rotation | None, Rotation]


def with_answers(own: torch.Tensor, objects: torch.Tensor, labels: torch.Tensor, known: Answers) -> torch.Tensor:
    """Return the suffix rows (image x question, S + 1) of some questions, each with the house form of its answer."""
    return torch.cat([own[objects.flatten()], known.house[labels.flatten().long()][:, None]], dim=1)


def chooser(shares: list[float], generator: torch.Generator) -> Callable[[], int]:
    """Return a function that draws the number of a template by its share."""
    weights = torch.tensor(shares)
    return lambda: int(torch.multinomial(weights, 1, generator=generator))
