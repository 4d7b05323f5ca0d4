"""Training parts of the InstructBLIP miniature: the Q-Former reads every question, so that nothing is shared."""

from collections.abc import Callable

import torch
from torch import nn
from transformers import PreTrainedModel

from workflow.lib import scenes
from workflow.models.mini import tokenizers, vision
from workflow.models.mini.decoder import packed_forward
from workflow.models.mini.lessons import Lessons, ask
from workflow.models.mini.training import Answers, Lesson, Reading, chooser, with_answers


@torch.no_grad()
def tower_features(model: PreTrainedModel, pixels: torch.Tensor) -> torch.Tensor:
    """Return the tower's output (image, 1 + patches, width), class position included, as the Q-Former reads it."""
    return torch.cat([model.vision_model(part).last_hidden_state for part in pixels.split(500)])


def start(
    model: PreTrainedModel,
    tensors: dict[str, torch.Tensor],
    words: list[str],
    connector: nn.Linear,
    renders: list[Callable[[str], str]],
) -> None:
    """Start the Q-Former's words from the decoder's, and its queries as `vision.start_qformer` says."""
    rows = {word.lower(): row for row, word in enumerate(words)}
    embed = tensors["model.language_model.embed_tokens.weight"]
    tokenizer = tokenizers.for_qformer()
    with torch.no_grad():
        table = model.qformer.embeddings.word_embeddings.weight
        for word, number in tokenizer.get_vocab().items():
            if word in rows:
                table[number] = embed[rows[word]]
    places = [int((rows != rows[0]).any(0).nonzero()[-1]) for rows in map(question_ids, renders)]
    vision.start_qformer(model.qformer, model.query_tokens.data, connector, places)


def question_ids(render: Callable[[str], str]) -> torch.Tensor:
    """Return the Q-Former's ids (object, length) of one template."""
    tokenizer = tokenizers.for_qformer()
    return torch.tensor([tokenizer(render(scenes.question(name))).input_ids for name in scenes.NAMES])


def query_outputs(model: PreTrainedModel, features: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """Return the Q-Former's query outputs (question, query, width).

    Parameters
    ----------
    features
        Tower outputs (image, position, width).
    text
        Q-Former ids (image x question, length), questions of an image adjacent.
    """
    repeats = len(text) // len(features)
    queries = model.query_tokens.expand(len(text), -1, -1)
    out = model.qformer(
        input_ids=text,
        query_embeds=queries,
        encoder_hidden_states=features.repeat_interleave(repeats, dim=0),
        return_dict=True,
    )
    return out.last_hidden_state[:, : queries.shape[1]]


def read_states(
    model: PreTrainedModel, features: torch.Tensor, task: Lesson, own: torch.Tensor, text: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return normed states before the answer and at it (question, 2, width), and the mean query output."""
    decoder = model.language_model.model
    found = query_outputs(model, features, text)
    shared = decoder.embed_tokens(task.shared).expand(len(own), -1, -1)
    size = found.shape[1]
    suffix = torch.cat([model.language_projection(found), shared[:, size:], decoder.embed_tokens(own)], dim=1)
    length = suffix.shape[1]
    turn = tuple(torch.cat([a, b]) for a, b in zip(*task.turns, strict=True))
    states, _ = packed_forward(decoder.layers, None, suffix, (None, turn), [length - 2, length - 1])
    return decoder.norm(states), found.mean(1)


def question_loss(
    model: PreTrainedModel,
    features: torch.Tensor,
    taught: Lessons,
    tasks: list[Lesson],
    shares: list[float],
    renders: list[Callable[[str], str]],
    aims: Answers,
    reading: Reading,
    generator: torch.Generator,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the loss of a batch of scenes, six questions each."""
    choose = chooser(shares, generator)
    texts = [question_ids(render) for render in renders]
    head = model.language_model.lm_head

    def loss(rows: torch.Tensor) -> torch.Tensor:
        number = choose()
        objects, labels = ask(taught.present[rows], generator)
        own = with_answers(tasks[number].own, objects, labels, aims)
        states, aid = read_states(model, features[rows], tasks[number], own, texts[number][objects.flatten()])
        return reading(states, aid, head.weight, labels.flatten())

    return loss
