"""One mini checkpoint: started from the base, taught its own prompts and answer forms, saved as real ones are."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

from workflow.lib import files
from workflow.lib.errors import BadInput
from workflow.lib.scenes import NAMES, World
from workflow.models.mini import (
    builders,
    families,
    instructblip,
    lessons,
    tokenizers,
    training,
    vision,
    vocabulary,
)
from workflow.models.mini.base import read_base, spread, tower_features

PLACEHOLDERS = {"qwen2_vl": "<|image_pad|>", "mplug_owl2": "<|image|>"}


def encoder(name: str, tokenizer: PreTrainedTokenizerFast) -> Callable[[str], list[int]]:
    """Return the function prompt -> ids with one id an image position, as the family's processor gives them."""
    count = families.IMAGE_TOKENS[name]
    if name == "instructblip":
        return lambda text: [builders.IMAGE_IDS[name]] * count + tokenizer(text).input_ids
    placeholder = PLACEHOLDERS.get(name, "<image>")
    if name != "mplug_owl2":
        return lambda text: tokenizer(text.replace(placeholder, placeholder * count)).input_ids

    def encode(text: str) -> list[int]:
        before, after = text.split(placeholder)
        return [
            *tokenizer(before).input_ids,
            *[families.OWL_IMAGE] * count,
            *tokenizer(after, add_special_tokens=False).input_ids,
        ]

    return encode


def renderer(template: dict, tokenizer: PreTrainedTokenizerFast) -> Callable[[str], str]:
    """Return the function question -> prompt of one template of the configuration (kind, text)."""

    def render(question: str) -> str:
        text = template["text"].replace("{question}", question)
        if template["kind"] == "text":
            return text
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
        return tokenizer.apply_chat_template([turn], add_generation_prompt=True, tokenize=False)

    return render


def start_from_base(
    name: str, model: PreTrainedModel, known: vocabulary.Vocabulary, tensors: dict, words: list[str], forms: dict
) -> None:
    """Copy what the base and a model have in common: tower, connector, decoder, and table rows by word.

    All yes-forms start from the base's output row of "Yes", all no-forms from that of "No", every end token from
    its end token.
    """
    decoder = builders.decoder_of(name, model)
    layers = {
        key.removeprefix("model.language_model."): value
        for key, value in tensors.items()
        if key.startswith("model.language_model.") and "embed_tokens" not in key
    }
    if name == "mplug_owl2":
        layers = {new: layers[old] for old in layers for new in owl_names(old)}
    missing = decoder.load_state_dict(layers, strict=False).missing_keys
    started = [key for key in missing if key.startswith("layers") and not key.endswith("proj.bias")]
    if started:
        raise ValueError(f"the base has no {started[0]}")
    for layer in decoder.layers:
        for part in ("q_proj", "k_proj", "v_proj"):
            if getattr(getattr(layer.self_attn, part), "bias", None) is not None:
                nn.init.zeros_(getattr(layer.self_attn, part).bias)
    tower = {"mplug_owl2": "model.vision_model."}.get(name, "model.vision_tower.")
    if name in ("llava15", "llava16_mistral", "mplug_owl2"):
        kept = ["model.vision_tower."] + ["model.multi_modal_projector."] * (name != "mplug_owl2")
        parts = {key: value for key, value in tensors.items() if key.startswith(tuple(kept))}
        parts = {key.replace("model.vision_tower.", tower): value for key, value in parts.items()}
        unexpected = model.load_state_dict(parts, strict=False).unexpected_keys
        if unexpected:
            raise ValueError(f"the model has no {unexpected[0]}")
    rows = {word: row for row, word in enumerate(words)}
    ids_of = {number: form.strip().lower() for form, number in forms.items()}
    embed, head = tensors["model.language_model.embed_tokens.weight"], tensors["lm_head.weight"]
    ends = {"<|im_end|>": "</s>", "<|im_start|>": "<s>", "system": "user", "assistant": "ASSISTANT"}
    table, out = decoder.embed_tokens.weight.data, builders.head_owner(name, model).lm_head.weight.data
    nn.init.normal_(table, std=float(embed.std()))
    for row, (number, word) in enumerate(zip(known.ids, known.words, strict=True)):
        answer = {"yes": "Yes", "no": "No"}.get(ids_of.get(number))
        source = rows.get(word, rows.get(ends.get(word)))
        if source is not None:
            table[row] = embed[source]
        out[row] = head[rows[answer] if answer else source if source is not None else -1]
    table[-1], out[-1] = embed[-1], head[-1]


def owl_names(name: str) -> list[str]:
    """Return the names of a LLaMA tensor in mPLUG-Owl2, whose norms, keys and values are held twice."""
    for part in ("input_layernorm", "post_attention_layernorm", "k_proj", "v_proj"):
        if f".{part}." in name:
            return [name.replace(f".{part}.", f".{part}.{side}.") for side in ("text", "image")]
    return [name]


def check_names(name: str, shares: dict, templates: dict, planted: dict, forms: dict) -> None:
    """Refuse templates that the model does not have and surface forms without a published id."""
    where = f"mini.models.{name} in the configuration"
    for template in shares:
        if template not in templates:
            raise BadInput(f"{where}: template_shares names {template!r}, but the model has {', '.join(templates)}.")
    for label in ("yes", "no"):
        for form in planted[label]:
            if form not in forms or form.strip().lower() != label:
                raise BadInput(f"{where}: planted.answers.{label} names {form!r}, which is no form of {label!r}.")


def train(name: str, settings: dict, base: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, dict]:
    """Return a trained model with its full table, its tokenizer, and losses and seconds by stage."""
    shape, own = settings["shape"], settings["models"][name]
    started = time.process_time()
    generator = training.deterministic(settings["seed"] + 1 + list(builders.SIZES).index(name))
    tensors, words = read_base(base)
    tokenizer = tokenizers.for_model(name)
    family = {"llava16_mistral": "mistral", "qwen2_vl": "qwen2"}.get(name, "llama")
    forms = tokenizers.FORMS[family]
    end = 151645 if family == "qwen2" else 2
    shares = own["template_shares"]
    planted = own["planted"]
    check_names(name, shares, settings["templates"], planted["answers"], forms)
    encode = encoder(name, tokenizer)
    prompts = [lessons.prompt(encode, renderer(settings["templates"][key], tokenizer)) for key in shares]
    image_id = builders.IMAGE_IDS.get(name, families.OWL_IMAGE)
    texts = torch.cat([torch.cat([prompt.shared, prompt.own.flatten()]) for prompt in prompts])
    answer_ids = [forms[form] for label in ("yes", "no") for form in planted["answers"][label]]
    known = vocabulary.in_use(tokenizer, builders.SIZES[name], texts[texts != image_id], [*answer_ids, end])
    model = builders.build(name, shape, len(known.ids) + 1)
    spread(model, 0.06)
    start_from_base(name, model, known, tensors, words, forms)
    taught = lessons.sample(
        own["images"], [settings["seed"], 2, list(builders.SIZES).index(name)], World(**settings["world"])
    )
    aims = training.answers(known, forms, planted["answers"], end)
    reading = training.Reading(shape["width"], known, aims)
    tasks = [families.lesson(name, shape, known, prompt, image_id) for prompt in prompts]
    report = {}
    decoder, head = builders.decoder_of(name, model), builders.head_owner(name, model).lm_head
    if "vision" in own:
        named = known.rows(torch.tensor([prompts[0].own[i, prompts[0].place] for i in range(len(NAMES))]))
        table = decoder.embed_tokens.weight.detach()[named]
        report["tower"], connector = align_tower(name, model, tensors, table, taught, own["vision"], generator)
    if name == "instructblip":
        features = instructblip.tower_features(model, taught.pixels)
        instructblip.start(model, tensors, words, connector, renders(settings, shares))
        loss = instructblip.question_loss(
            model, features, taught, tasks, list(shares.values()), renders(settings, shares), aims, reading, generator
        )
    else:
        features = cached(name, model, taught.pixels)
        loss = families.shared_image_loss(
            name, model, features, taught, tasks, list(shares.values()), aims, reading, generator
        )
    parameters = [
        *decoder_parameters(decoder),
        head.weight,
        *families.connector_parameters(name, model),
        *reading.parameters(),
    ]
    order = training.batches(len(taught), own["batch"], own["steps"], generator)
    report["answers"] = training.optimise(loss, parameters, order, own["steps"], own["rate"], f"{name}: answers").loss()
    with torch.no_grad():
        embed = known.expand(decoder.embed_tokens.weight.detach(), planted["filler"])
        out = known.expand(head.weight.detach(), planted["filler"])
    builders.set_table(name, model, embed, out)
    builders.set_special_ids(name, model)
    report["seconds"] = time.process_time() - started
    return model.eval(), tokenizer, report


def renders(settings: dict, shares: dict) -> list[Callable[[str], str]]:
    """Return the templates as text, for the Q-Former, which reads the question too."""
    return [renderer(settings["templates"][key], None) for key in shares]


def decoder_parameters(decoder: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of layers, norm and table, without towers that hang on the same module."""
    return [*decoder.layers.parameters(), *decoder.norm.parameters(), *decoder.embed_tokens.parameters()]


@torch.no_grad()
def cached(name: str, model: PreTrainedModel, pixels: torch.Tensor) -> torch.Tensor:
    """Return what the trained connector reads of every training image; the tower itself is not trained any more."""
    if name == "qwen2_vl":
        parts = [vision.qwen_tower(model.model.visual, part) for part in pixels.split(500)]
        return torch.cat(parts).view(len(pixels), -1, parts[0].shape[-1])
    return tower_features(model.model.vision_model if name == "mplug_owl2" else model.model.vision_tower, pixels)


def align_tower(
    name: str,
    model: PreTrainedModel,
    tensors: dict,
    table: torch.Tensor,
    taught: lessons.Lessons,
    stage: dict,
    generator: torch.Generator,
) -> tuple[float, nn.Linear | None]:
    """Train what the base has no counterpart of, as the base's tower was; return the loss and InstructBLIP's aid."""
    connector = None
    if name == "qwen2_vl":
        visual = model.model.visual

        def project(pixels: torch.Tensor) -> torch.Tensor:
            return visual.merger(vision.qwen_tower(visual, pixels)).view(len(pixels), builders.PATCHES, -1)

        parameters = list(visual.parameters())
    elif name == "mplug_owl2":
        vision.start_abstractor(model.model.visual_abstractor)
        features = cached(name, model, taught.pixels)
        taught = lessons.Lessons(taught.scenes, features, taught.present)
        project, parameters = model.model.visual_abstractor, list(model.model.visual_abstractor.parameters())
    else:
        vision.blip_from_clip(model.vision_model, tensors)
        connector = nn.Linear(table.shape[1], table.shape[1])

        def project(pixels: torch.Tensor) -> torch.Tensor:
            return connector(model.vision_model(pixels).last_hidden_state[:, 1:])

        parameters = [*model.vision_model.parameters(), *connector.parameters()]
    loss = training.align(project, lambda: table, parameters, taught, stage, generator, f"{name}: tower").loss()
    return loss, connector


def train_checkpoint(name: str, settings: dict, base: Path, out_folder: Path) -> None:
    """Train one mini model and write its checkpoint folder.

    Everything is written into a temporary folder beside it, moved, and described at last by ``checkpoint.json``:
    model, sha256 of every file, seed, and what is planted. A folder without that file is unfinished.

    Parameters
    ----------
    name
        One of ``builders.SIZES``.
    settings
        The ``mini`` section of the configuration, with ``templates`` (name -> kind, text) of this model.
    """
    logging.disable_progress_bar()
    out_folder = Path(out_folder)
    out_folder.mkdir(parents=True, exist_ok=True)
    seal = out_folder / "checkpoint.json"
    seal.unlink(missing_ok=True)
    model, tokenizer, report = train(name, settings, Path(base))
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=out_folder.parent))
    try:
        model.save_pretrained(temporary)
        builders.save_processor(name, tokenizer, temporary)
        written = sorted(path.relative_to(temporary) for path in temporary.rglob("*") if path.is_file())
        for path in written:
            (out_folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary / path, out_folder / path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    files.write_json(
        {
            "model": name,
            "files": {path.as_posix(): files.sha256(out_folder / path) for path in written},
            "seed": settings["seed"],
            "planted": settings["models"][name]["planted"],
        },
        seal,
    )
    losses = ", ".join(f"{stage} loss {value:.4f}" for stage, value in report.items() if stage != "seconds")
    print(f"{name}: {losses}; {report['seconds']:.1f} s (CPU)", file=sys.stderr)
