"""What sets the families apart in training: how an image enters the decoder, and the positions it takes."""

from collections.abc import Callable

import torch
from torch import nn

from workflow.lib.scenes import GRID
from workflow.models.mini import builders
from workflow.models.mini.decoder import packed_forward, rotation
from workflow.models.mini.lessons import Lessons, Prompt, ask
from workflow.models.mini.training import Answers, Lesson, Reading, chooser, with_answers
from workflow.models.mini.vocabulary import Vocabulary

# stands for the image of mPLUG-Owl2, as in its own input ids
OWL_IMAGE = -200
IMAGE_TOKENS = {
    "llava15": builders.PATCHES,
    # the whole image, then its one tile with a newline after each row of patches
    "llava16_mistral": builders.PATCHES + GRID * (GRID + 1),
    "mplug_owl2": builders.PATCHES,
    "qwen2_vl": builders.PATCHES,
    "instructblip": builders.QUERIES,
}


def lesson(name: str, shape: dict, known: Vocabulary, prompt: Prompt, image_id: int) -> Lesson:
    """Return a prompt in compact rows. The image positions of its prefix get any row, because they are overwritten."""
    image = prompt.shared == image_id
    rows = torch.zeros_like(prompt.shared)
    rows[~image] = known.rows(prompt.shared[~image])
    length, size = len(rows), prompt.own.shape[1] + 1
    head_size = shape["width"] // shape["heads"]
    positions = torch.arange(length + size)
    sections = None
    if name == "qwen2_vl":
        positions, sections = qwen_positions(image, size), builders.QWEN_SECTIONS
    cosine, sine = rotation(positions, head_size, float(shape["rope_theta"]), sections)
    turns = ((cosine[:length], sine[:length]), (cosine[length:], sine[length:]))
    return Lesson(rows, known.rows(prompt.own), image, prompt.place, turns)


def qwen_positions(image: torch.Tensor, more: int) -> torch.Tensor:
    """Return time, height and width (3, P + more) of a prefix with one GRID x GRID image and of what follows.

    Text counts up in all three; the image keeps the time of its start and spans rows and columns; the text after it
    goes on from its largest position.
    """
    start = int(image.long().argmax())
    grid = torch.arange(GRID)
    before = torch.arange(start).expand(3, -1)
    span = torch.stack([torch.zeros(GRID * GRID, dtype=torch.long), grid.repeat_interleave(GRID), grid.repeat(GRID)])
    rest = len(image) - start - GRID * GRID + more
    after = (start + GRID + torch.arange(rest)).expand(3, -1)
    return torch.cat([before, start + span, after], dim=1)


def image_rows(name: str, model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Return the image as the decoder gets it (image, positions, width) from the cached outputs of the tower."""
    if name == "mplug_owl2":
        return model.model.visual_abstractor(features)
    if name == "qwen2_vl":
        return model.model.visual.merger(features.flatten(0, 1)).view(len(features), builders.PATCHES, -1)
    rows = model.model.multi_modal_projector(features)
    if name == "llava16_mistral":
        newline = model.model.image_newline.expand(len(rows), GRID, 1, -1)
        tile = torch.cat([rows.view(len(rows), GRID, GRID, -1), newline], dim=2).flatten(1, 2)
        rows = torch.cat([rows, tile], dim=1)
    return rows


def connector_parameters(name: str, model: nn.Module) -> list[nn.Parameter]:
    """Return what is trained between tower and decoder."""
    if name == "mplug_owl2":
        return list(model.model.visual_abstractor.parameters())
    if name == "qwen2_vl":
        return list(model.model.visual.merger.parameters())
    if name == "instructblip":
        return [*model.qformer.parameters(), *model.language_projection.parameters(), model.query_tokens]
    newline = [model.model.image_newline] if name == "llava16_mistral" else []
    return [*model.model.multi_modal_projector.parameters(), *newline]


def prefix_states(name: str, model: nn.Module, features: torch.Tensor, task: Lesson) -> torch.Tensor:
    """Return the embedded prefixes (image, P, width)."""
    table = builders.decoder_of(name, model).embed_tokens
    images = image_rows(name, model, features)
    prefix = table(task.shared).expand(len(features), -1, -1)
    place = task.image.long().argmax()
    return torch.cat([prefix[:, :place], images, prefix[:, place + images.shape[1] :]], dim=1)


def read_states(
    name: str, model: nn.Module, features: torch.Tensor, task: Lesson, own: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return normed states before the answer and at it (question, 2, width), and the states at the names.

    ``own`` holds the compact rows (image x question, S + 1) after the shared prefix, with an answer at the end.
    """
    decoder = builders.decoder_of(name, model)
    prefix = prefix_states(name, model, features, task)
    suffix = decoder.embed_tokens(own)
    size = own.shape[1]
    visual = (task.image.expand(len(prefix), -1), None) if name == "mplug_owl2" else (None, None)
    states, before = packed_forward(decoder.layers, prefix, suffix, task.turns, [size - 2, size - 1], visual)
    return decoder.norm(states), before[:, task.place]


def shared_image_loss(
    name: str,
    model: nn.Module,
    features: torch.Tensor,
    taught: Lessons,
    tasks: list[Lesson],
    shares: list[float],
    aims: Answers,
    reading: Reading,
    generator: torch.Generator,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the loss of a batch of scenes, six questions each, for the families whose image stands before the text."""
    choose = chooser(shares, generator)
    head = builders.head_owner(name, model).lm_head

    def loss(rows: torch.Tensor) -> torch.Tensor:
        task = tasks[choose()]
        objects, labels = ask(taught.present[rows], generator)
        own = with_answers(task.own, objects, labels, aims)
        states, at_name = read_states(name, model, features[rows], task, own)
        return reading(states, at_name, head.weight, labels.flatten())

    return loss
