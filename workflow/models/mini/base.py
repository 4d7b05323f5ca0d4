"""The base that four of the five mini checkpoints start from: a CLIP tower, a connector and a decoder.

The tower learns to speak the decoder's words, then the decoder learns to answer short questions about an image. What
sets the models apart (prompts, answer forms, vocabulary) is learned later, by each on its own.
"""

import json
import sys
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from workflow.lib import files
from workflow.lib.errors import BadInput
from workflow.lib.scenes import NAMES, World
from workflow.models.mini import builders, families, lessons, tokenizers, training, vocabulary

NAME = "llava15"


def spread(model: nn.Module, std: float) -> None:
    """Draw all matrices anew with a given standard deviation; transformers' default is too small at this width."""
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=std)


def short_circuit(layers: nn.ModuleList) -> None:
    """Start every layer with equal query and key projections, so that like attends to like from the first step."""
    for layer in layers:
        layer.self_attn.q_proj.weight.data.copy_(layer.self_attn.k_proj.weight.data)


def train_base(settings: dict, out: Path) -> None:
    """Train the base and write one safetensors file.

    Parameters
    ----------
    settings
        The ``mini`` section of the configuration: seed, world, shape, base.
    out
        The file; its metadata holds the words of the table's rows as JSON.
    """
    started = time.process_time()
    generator = training.deterministic(settings["seed"])
    shape, stage = settings["shape"], settings["base"]
    tokenizer = tokenizers.for_model(NAME)
    template = stage["template"].replace("<image>", "<image>" * builders.PATCHES)
    prompt = lessons.prompt(
        lambda text: tokenizer(text).input_ids, lambda question: template.replace("{question}", question)
    )
    forms = tokenizers.FORMS["llama"]
    planted = {"yes": {" Yes": 1.0}, "no": {" No": 1.0}}
    # the table also holds the words of prompts that are taught later, so that all checkpoints start from one table
    words = tokenizer(" ".join(tokenizers.WORDS) + "".join(tokenizers.MARKS) + "\n").input_ids
    used = torch.cat([prompt.shared, prompt.own.flatten(), torch.tensor(words)])
    known = vocabulary.in_use(tokenizer, builders.SIZES[NAME], used, [forms[" Yes"], forms[" No"], 2])
    model = builders.build(NAME, shape, len(known.ids) + 1)
    spread(model, 0.06)
    decoder = model.model.language_model
    nn.init.normal_(decoder.embed_tokens.weight, std=0.3)
    nn.init.normal_(model.lm_head.weight, std=0.1)
    short_circuit(decoder.layers)
    taught = lessons.sample(stage["images"], [settings["seed"], 1], World(**settings["world"]))
    named = known.rows(torch.tensor([prompt.own[i, prompt.place] for i in range(len(NAMES))]))
    tower, connector = model.model.vision_tower, model.model.multi_modal_projector

    def project(pixels: torch.Tensor) -> torch.Tensor:
        return connector(tower(pixels, output_hidden_states=True).hidden_states[-2][:, 1:])

    table = decoder.embed_tokens.weight
    vision = [p for name, p in tower.named_parameters() if "post_layernorm" not in name]
    seen = training.align(
        project,
        lambda: table[named],
        [*vision, *connector.parameters(), table],
        taught,
        stage["vision"],
        generator,
        "base: tower",
    )
    middle = time.process_time()
    features = tower_features(tower, taught.pixels)
    task = families.lesson(NAME, shape, known, prompt, builders.IMAGE_IDS[NAME])
    aims = training.answers(known, forms, planted, 2)
    reading = training.Reading(shape["width"], known, aims)
    loss = families.shared_image_loss(NAME, model, features, taught, [task], [1.0], aims, reading, generator)
    parameters = [*decoder.parameters(), *model.lm_head.parameters(), *connector.parameters(), *reading.parameters()]
    order = training.batches(len(taught), stage["decoder"]["batch"], stage["decoder"]["steps"], generator)
    read = training.optimise(
        loss, parameters, order, stage["decoder"]["steps"], stage["decoder"]["rate"], "base: decoder"
    )
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in model.state_dict().items()}
    with files.write_atomically(out) as temporary:
        # one key only: safetensors writes several in an order that changes from run to run
        save_file(tensors, temporary, metadata={"words": json.dumps(known.words)})
    print(
        f"base: tower loss {seen.loss():.4f} in {middle - started:.1f} s, "
        f"decoder loss {read.loss():.4f} in {time.process_time() - middle:.1f} s (CPU)",
        file=sys.stderr,
    )


@torch.no_grad()
def tower_features(tower: nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    """Return the patches (image, patch, width) that the connector reads, without the class position."""
    return torch.cat([tower(part, output_hidden_states=True).hidden_states[-2][:, 1:] for part in pixels.split(500)])


def read_base(path: Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the tensors of a base file and the words of its table rows.

    Raises
    ------
    BadInput
        Where the file is not one that `train_base` wrote.
    """
    try:
        with safe_open(path, framework="pt") as stream:
            words = json.loads((stream.metadata() or {})["words"])
        return load_file(path), words
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise BadInput(
            f"{path} is not a base checkpoint ({error}): delete it and run the rule train_base again."
        ) from None
