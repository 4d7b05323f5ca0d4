"""Cosines between the asked noun and an image, by two CLIP models.

CLIP-B sees the image as 17 crops, a 4 x 4 grid and the whole. CLIP-L lends its text side and its projection only:
the patches are those of the audited model's own vision tower. What is stored are cosines; certainties follow from
them without a model (`workflow.lib.signal_parts`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn
from tqdm import tqdm
from transformers import AutoTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.clip.modeling_clip import CLIPModel

from workflow.lib import files, nouns, signal_parts
from workflow.lib.items import KEY
from workflow.models import images, subject
from workflow.models.adapter import Adapter
from workflow.models.precision import DTYPES

GRID = 4
"""Crops along each side; the whole image is one more."""
NO_TOWER = "the audited model's vision tower is not the one of this CLIP model"


class Clip:
    """A CLIP checkpoint: ``CLIPModel`` with tokenizer and image processor in one folder.

    Parameters
    ----------
    checkpoint : str
        Its manifest: ``checkpoint.json`` in that folder, or ``NAME.json`` beside it.
    device, dtype : str
        As in the section ``run``.
    """

    def __init__(self, checkpoint: str, device: str = "cpu", dtype: str = "float32") -> None:
        self.manifest = files.read_json(checkpoint)
        subject.check_checkpoint(checkpoint, self.manifest)
        folder = subject.folder_of(checkpoint)
        self.model = CLIPModel.from_pretrained(folder, dtype=DTYPES[dtype]).to(device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.processor = CLIPImageProcessorPil.from_pretrained(folder)

    @torch.inference_mode()
    def texts(self, words: Sequence[str]) -> torch.Tensor:
        """Return unit text embeddings of bare nouns, float32 (words, projection)."""
        inputs = self.tokenizer(
            list(words), padding=True, truncation=True, max_length=self.limit, padding_side="right", return_tensors="pt"
        ).to(self.model.device)
        held = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        return unit(self.model.get_text_features(**held).pooler_output)

    @property
    def limit(self) -> int:
        """The longest text in tokens."""
        return self.model.config.text_config.max_position_embeddings

    def pixels(self, pictures: Sequence[Image.Image]) -> torch.Tensor:
        """Return what the image processor makes of some images."""
        values = self.processor(images=list(pictures), return_tensors="pt")["pixel_values"]
        return values.to(self.model.device, self.model.dtype)

    @torch.inference_mode()
    def whole(self, pictures: Sequence[Image.Image]) -> torch.Tensor:
        """Return unit image embeddings (the class position), float32 (images, projection)."""
        return unit(self.model.get_image_features(pixel_values=self.pixels(pictures)).pooler_output)

    @torch.inference_mode()
    def patches(self, pictures: Sequence[Image.Image]) -> torch.Tensor:
        """Return unit patch embeddings of this model's own tower, as `projected` makes them."""
        return self.projected(self.model.vision_model(self.pixels(pictures)).last_hidden_state)

    @torch.inference_mode()
    def projected(self, states: torch.Tensor) -> torch.Tensor:
        """Return unit patch embeddings (images, patches, projection) of a tower's last hidden states.

        The class position is dropped and, as in the released code, the norm after the last layer is not applied.
        """
        return unit(self.model.visual_projection(states[:, 1:].to(self.model.visual_projection.weight.dtype)))

    @torch.inference_mode()
    def class_position(self, states: torch.Tensor) -> torch.Tensor:
        """Return the unit embedding of the class position, normed and projected as CLIP does; (images, projection)."""
        held = states[:, 0].to(self.model.visual_projection.weight.dtype)
        return unit(self.model.visual_projection(self.model.vision_model.post_layernorm(held)))


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Return float32 vectors of length 1; a zero vector stays zero, so that its cosines are 0 and not NaN."""
    vectors = vectors.float()
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def crops(picture: Image.Image) -> list[Image.Image]:
    """Return the 4 x 4 grid, row by row, and the whole image.

    Cells have the integer quarter of width and height, at least one pixel, so the rest at the right and lower edge
    is in the whole image only, as in the released code.
    """
    width, height = (max(side // GRID, 1) for side in picture.size)
    cells = [
        picture.crop((column * width, row * height, (column + 1) * width, (row + 1) * height))
        for row in range(GRID)
        for column in range(GRID)
    ]
    return [*cells, picture]


def crop_cosines(model: Clip, picture: Image.Image, texts: torch.Tensor) -> torch.Tensor:
    """Return cosines (crops, texts) of one image; the last row is the whole image."""
    return model.whole(crops(picture)) @ texts.T


def tower_of(adapter: Adapter) -> nn.Module | None:
    """Return the audited model's vision tower where it is a CLIP tower, else None."""
    inner = getattr(adapter.model, "model", None)
    for name in ("vision_tower", "vision_model"):
        tower = getattr(inner, name, None)
        if tower is not None and hasattr(tower, "post_layernorm"):
            return tower
    return None


@torch.inference_mode()
def tower_states(adapter: Adapter, tower: nn.Module, pictures: Sequence[Image.Image], prompt: str) -> torch.Tensor:
    """Return the last hidden states (images, 1 + patches, width) of the audited model's own tower.

    The models themselves read an earlier layer. Of a family that cuts images into tiles the whole image is taken.
    """
    inputs = adapter.encode(pictures, [prompt] * len(pictures))
    pixels = inputs["pixel_values"] if "pixel_values" in inputs else inputs["images"]
    # (image, tile, channel, height, width); the first tile is the whole image
    return tower(pixels[:, 0] if pixels.dim() == 5 else pixels).last_hidden_state


def measure(
    table: list[dict], folder: Path, b: Clip | None, held: tuple[Clip, Adapter, nn.Module, str] | None, pattern: str
) -> pd.DataFrame:
    """Return the similarities of all questions.

    Parameters
    ----------
    table : list of dict
        Items, questions of an image adjacent or not.
    folder : Path
        Their images.
    b : Clip or None
        CLIP-B.
    held : (Clip, Adapter, tower, prompt) or None
        CLIP-L, and the audited model with its tower and any prompt.
    pattern : str
        Of `workflow.lib.nouns.PATTERNS`.

    Returns
    -------
    pandas.DataFrame
        Key, noun, and the columns of `workflow.lib.signal_parts.SIMILARITIES` that could be measured.
    """
    named = [nouns.noun(row["question"], pattern) for row in table]
    vocabulary = list(dict.fromkeys(named))
    by_image: dict[str, list[int]] = {}
    for number, row in enumerate(table):
        by_image.setdefault(row["image"], []).append(number)
    embedded = {which: model.texts(vocabulary) for which, model in (("b", b), ("l", held and held[0])) if model}
    columns = {
        name: np.empty(len(table), np.float32) for which in embedded for name in signal_parts.SIMILARITIES[which]
    }
    for image, rows in tqdm(by_image.items(), unit="image", desc="clip", mininterval=2):
        picture = images.open_image(folder / image)
        asked = [vocabulary.index(named[row]) for row in rows]
        found = {}
        if b:
            cosines = crop_cosines(b, picture, embedded["b"])
            found["clip_b_similarity"] = cosines.amax(0)
            found["clip_b_image_similarity"] = cosines[-1]
            found["clip_b_patch_similarity"] = (b.patches([picture])[0] @ embedded["b"].T).amax(0)
        if held:
            model, adapter, tower, prompt = held
            states = tower_states(adapter, tower, [picture], prompt)
            found["clip_l_similarity"] = (model.projected(states)[0] @ embedded["l"].T).amax(0)
            found["clip_l_cls_similarity"] = (model.class_position(states) @ embedded["l"].T)[0]
        for name, cosines in found.items():
            columns[name][rows] = cosines[asked].cpu().numpy()
    keys = {key: [row[key] for row in table] for key in KEY}
    return pd.DataFrame(keys | {"noun": named} | columns)


def infer(
    questions: str,
    image_table: str,
    checkpoint: str,
    out: str,
    *,
    clip: Mapping[str, str],
    pattern: str,
    **conditions: object,
) -> None:
    """Measure the similarities of one split and write them as a part of the signals table.

    Parameters
    ----------
    questions, image_table, checkpoint, out : str
        As for `workflow.models.shard.infer`.
    clip : mapping
        By "b" and "l" the manifest of a CLIP model; a model that is not configured is absent.
    pattern : str
        ``signals.nouns``.
    conditions
        model, settings, run, study, seed, code; see `workflow.models.subject.load`.
    """
    asked = subject.load(questions, image_table, checkpoint, **conditions)
    run = conditions["run"]
    missing, held = {}, None
    # one image at a time already, so that only the models themselves can be made smaller, or fewer
    fewer = f'set signals.clip.{max(clip, default="b")}.checkpoint to ""'
    with asked.adapter.precision.shortage_named("with the audited model and CLIP in it", fewer):
        models = {which: Clip(path, run["device"], run["dtype"]) for which, path in sorted(clip.items())}
        tower = tower_of(asked.adapter)
        if "l" in models:
            projection = models["l"].model.visual_projection
            if tower is not None and tower.config.hidden_size == projection.in_features:
                prompt = asked.adapter.render(asked.template, asked.table["question"][0].as_py())
                held = (models["l"], asked.adapter, tower, prompt)
            else:
                missing["l"] = NO_TOWER
        frame = measure(asked.table.to_pylist(), asked.images, models.get("b"), held, pattern)
    measured = {
        "nouns": pattern,
        "checkpoints": {which: files.sha256(path) for which, path in sorted(clip.items())},
        "revisions": {which: model.manifest.get("revision", signal_parts.TRAINED) for which, model in models.items()},
    }
    signal_parts.save(frame, out, asked.identity | {"kind": "clip", "measured": measured, "missing": missing})
