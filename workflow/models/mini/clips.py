"""The two mini CLIP models: text towers, projections, and for one of them a tower of its own.

"base": the vision tower is the base's, which the mini LLaVA models read, and stays as it is; so this is to them what
CLIP-L is to LLaVA-1.5. Its projection is trained on patches, while the real one was trained on the class position
and only serves for patches. "own": a small tower of its own, trained on whole scenes and on the cells of the
4 x 4 grid; the counterpart of CLIP-B. Both learn which objects are there from a sigmoid loss over all names.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig, PreTrainedTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.utils import logging

from workflow.lib import files, scenes
from workflow.lib.errors import BadInput
from workflow.lib.scenes import CELL, GLYPH, GRID, NAMES, SIZE, World
from workflow.models import clip
from workflow.models.mini import builders, lessons, tokenizers, training
from workflow.models.mini.base import read_base

CALIBRATED = 100
"""Training scenes whose questions give the median similarity."""
WINDOW = SIZE // clip.GRID
SEEN = 0.4
"""Share of an object's square that a window must hold for the object to count as in it."""
TOWERS = ("base", "own")


def text_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words in lower case, with CLIP's own special tokens."""
    words = sorted({word.lower() for word in tokenizers.WORDS} | set(tokenizers.MARKS))
    special = ("<pad>", "<|startoftext|>", "<unk>", "<|endoftext|>")
    vocabulary = {piece: number for number, piece in enumerate((*special, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|startoftext|> $A <|endoftext|>",
        special_tokens=[(piece, vocabulary[piece]) for piece in ("<|startoftext|>", "<|endoftext|>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=16,
    )


def build(shape: dict, own: dict, tokenizer: PreTrainedTokenizerFast) -> CLIPModel:
    """Return an untrained model: the base's tower or a small one, and a text tower of one layer."""
    width, heads = shape["width"], shape["heads"]
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=1,
        num_attention_heads=heads,
        max_position_embeddings=16,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    if own["tower"] == "base":
        vision = builders.clip_shape(shape)
    else:
        vision = CLIPVisionConfig(
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=shape["vision_layers"],
            num_attention_heads=heads,
            image_size=own["input"],
            patch_size=own["input"] // GRID,
        )
    model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=width))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "position" not in name:
            # transformers' default is too small at this width
            nn.init.normal_(parameter, std=0.1)
    return model


def put_tower(model: CLIPModel, tensors: dict[str, torch.Tensor]) -> None:
    """Copy the base's tower and fix it."""
    start = "model.vision_tower."
    held = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
    held = {name.removeprefix("vision_model."): value for name, value in held.items()}
    model.vision_model.load_state_dict(held)
    model.vision_model.requires_grad_(False)


class Matching(nn.Module):
    """Loss of cosines with names: one logistic decision an object, with a learned scale and offset."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.offset = nn.Parameter(torch.tensor(-3.0))

    def forward(self, cosines: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Return the loss of cosines (image, view, object), the best view counting most, against (image, object)."""
        scores = torch.logsumexp(self.scale.exp() * cosines, dim=1) + self.offset
        return functional.binary_cross_entropy_with_logits(scores, present.float())


def names_of(model: CLIPModel, tokenizer: PreTrainedTokenizerFast) -> Callable[[], torch.Tensor]:
    """Return a function that gives the unit embeddings of all names (object, projection)."""
    inputs = tokenizer(list(NAMES), padding=True, padding_side="right", return_tensors="pt")
    held = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    return lambda: functional.normalize(model.get_text_features(**held).pooler_output, dim=-1)


def base_loss(
    model: CLIPModel, names: Callable[[], torch.Tensor], taught: lessons.Lessons, losses: nn.ModuleList
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the loss of the model with the base's tower: its patches, and with less weight its class position."""
    with torch.no_grad():
        states = torch.cat([model.vision_model(part).last_hidden_state for part in taught.pixels.split(500)])
        states[:, 0] = model.vision_model.post_layernorm(states[:, 0])

    def loss(rows: torch.Tensor) -> torch.Tensor:
        seen = functional.normalize(model.visual_projection(states[rows]), dim=-1) @ names().T
        present = taught.present[rows]
        return losses[0](seen[:, 1:], present) + 0.25 * losses[1](seen[:, :1], present)

    return loss


def windows(drawn: scenes.Scenes) -> torch.Tensor:
    """Return which objects stand in which cell of the 4 x 4 grid: booleans (scene, cell, object)."""
    edges = np.arange(clip.GRID) * WINDOW
    corners = np.stack([drawn.cells // GRID, drawn.cells % GRID], axis=2) * CELL + drawn.shifts
    inside = np.minimum(corners[..., None] + GLYPH, edges + WINDOW) - np.maximum(corners[..., None], edges)
    share = inside.clip(0) / GLYPH
    area = share[:, :, 0, :, None] * share[:, :, 1, None, :]
    table = np.zeros((len(drawn), clip.GRID**2, len(NAMES)), dtype=bool)
    scene, place, row, column = np.nonzero((area >= SEEN) & (drawn.objects >= 0)[..., None, None])
    table[scene, row * clip.GRID + column, drawn.objects[scene, place]] = True
    return torch.from_numpy(table)


def own_loss(
    model: CLIPModel,
    names: Callable[[], torch.Tensor],
    taught: lessons.Lessons,
    losses: nn.ModuleList,
    generator: torch.Generator,
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the loss of the model with its own tower, on whole scenes and on two cells of each."""
    size = model.config.vision_config.image_size
    seen = windows(taught.scenes)

    def resized(pixels: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(pixels, size=(size, size), mode="bicubic", antialias=True)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        pixels = taught.pixels[rows]
        views, present = [resized(pixels)], [taught.present[rows]]
        cells = pixels.unfold(2, WINDOW, WINDOW).unfold(3, WINDOW, WINDOW).flatten(2, 3)
        for _ in range(2):
            cell = torch.randint(clip.GRID**2, (len(rows),), generator=generator)
            views.append(resized(cells[torch.arange(len(rows)), :, cell]))
            present.append(seen[rows, cell])
        embedded = model.get_image_features(pixel_values=torch.cat(views)).pooler_output
        cosines = (functional.normalize(embedded, dim=-1) @ names().T)[:, None]
        return losses[0](cosines[: len(rows)], present[0]) + losses[1](cosines[len(rows) :], torch.cat(present[1:]))

    return loss


def train(name: str, settings: dict, base: Path) -> tuple[CLIPModel, PreTrainedTokenizerFast, lessons.Lessons, float]:
    """Return a trained model, its tokenizer, its training scenes and the last loss."""
    own = settings["clip"]
    if own["tower"] not in TOWERS:
        raise BadInput(f"mini.clips.{name}.tower is {own['tower']!r}: use {' or '.join(TOWERS)}.")
    place = TOWERS.index(own["tower"])
    generator = training.deterministic(settings["seed"] + 101 + place)
    tokenizer = text_tokenizer()
    model = build(settings["shape"], own, tokenizer)
    taught = lessons.sample(own["images"], [settings["seed"], 5, place], World(**settings["world"]))
    losses = nn.ModuleList([Matching(), Matching()])
    names = names_of(model, tokenizer)
    text = [*model.text_model.parameters(), model.text_projection.weight, model.visual_projection.weight]
    if own["tower"] == "base":
        put_tower(model, read_base(base)[0])
        loss, trained = base_loss(model, names, taught, losses), text
    else:
        loss = own_loss(model, names, taught, losses, generator)
        trained = [*text, *model.vision_model.parameters()]
    order = training.batches(len(taught), own["batch"], own["steps"], generator)
    record = training.optimise(
        loss, [*trained, *losses.parameters()], order, own["steps"], own["rate"], f"{name}: names"
    )
    return model.eval(), tokenizer, taught, record.loss()


def train_clip(name: str, settings: dict, base: Path, out_folder: Path) -> None:
    """Train one mini CLIP model and write its checkpoint folder, sealed by ``checkpoint.json`` at last.

    Beside the hashes of all files it states the median similarity, measured as the signal is (best patch, or best
    of 17 crops), over six questions about each of 100 training scenes, three objects present and three absent.

    Parameters
    ----------
    name : str
        Name of the checkpoint.
    settings : dict
        seed, world, shape, and ``clip``: tower ("base" or "own"), images, batch, steps, rate, and for "own" the
        side of its input in pixels.
    """
    started = time.process_time()
    logging.disable_progress_bar()
    out_folder = Path(out_folder)
    out_folder.mkdir(parents=True, exist_ok=True)
    seal = out_folder / "checkpoint.json"
    seal.unlink(missing_ok=True)
    model, tokenizer, taught, loss = train(name, settings, Path(base))
    side = model.config.vision_config.image_size
    processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=out_folder.parent))
    try:
        for part in (model, tokenizer, processor):
            part.save_pretrained(temporary)
        written = sorted(path.relative_to(temporary) for path in temporary.rglob("*") if path.is_file())
        for path in written:
            os.replace(temporary / path, out_folder / path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    manifest = {
        "model": name,
        "files": {path.as_posix(): files.sha256(out_folder / path) for path in written},
        "seed": settings["seed"],
        "tower": settings["clip"]["tower"],
    }
    draft = seal.with_suffix(".draft")
    try:
        # the same code as the signal's measures, on the files that were written
        files.write_json(manifest, draft)
        median = median_similarity(clip.Clip(str(draft)), taught, settings)
    finally:
        draft.unlink(missing_ok=True)
    manifest["calibration"] = {"median_similarity": median, "scenes": min(CALIBRATED, len(taught))}
    files.write_json(manifest, seal)
    spent = time.process_time() - started
    print(f"{name}: loss {loss:.4f}, median similarity {median:.4f}; {spent:.1f} s (CPU)", file=sys.stderr)


def median_similarity(held: clip.Clip, taught: lessons.Lessons, settings: dict) -> float:
    """Return the median of the similarity over balanced questions about training scenes."""
    count = min(CALIBRATED, len(taught))
    generator = torch.Generator().manual_seed(settings["seed"])
    asked, _ = lessons.ask(taught.present[:count], generator)
    texts = held.texts(NAMES)
    found = []
    for picture, objects in zip(pictures(taught.pixels[:count]), asked, strict=True):
        if settings["clip"]["tower"] == "own":
            cosines = clip.crop_cosines(held, picture, texts)
        else:
            cosines = held.patches([picture])[0] @ texts.T
        found.append(cosines.amax(0)[objects])
    return float(np.median(torch.cat(found).numpy()))


def pictures(pixels: torch.Tensor) -> list[Image.Image]:
    """Return normalised training pixels as the images that they were made of."""
    mean, std = (torch.tensor(held).view(3, 1, 1) for held in (lessons.CLIP_MEAN, lessons.CLIP_STD))
    scaled = ((pixels * std + mean) * 255).round().clamp(0, 255).byte()
    return [Image.fromarray(picture.permute(1, 2, 0).numpy()) for picture in scaled]
