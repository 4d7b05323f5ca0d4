"""Tiny random checkpoints of the true classes, with questions and images: what tests of signals measure."""

import numpy as np
import torch

from workflow.lib import files, prompts
from workflow.models.adapter import load_adapter
from workflow.models.mini import builders, tokenizers
from workflow.models.mini.base import spread
from workflow.models.precision import Precision

FAMILIES = {"llava15": "llava", "llava16_mistral": "llava_next"}
SHAPE = {
    **{"width": 64, "heads": 4, "text_layers": 3, "text_mlp": 64, "rope_theta": 1e6, "vision_layers": 2},
    **{"vision_mlp": 64, "qformer_mlp": 64, "qwen_vision_layers": 1, "qwen_vision_width": 32},
}
TEXT = "{question} Answer yes or no only."
TEMPLATES = {
    "llava15": {"kind": "text", "text": "USER: <image>\n" + TEXT + "\nASSISTANT:"},
    "llava16_mistral": {"kind": "text", "text": "USER: <image>\n" + TEXT + "\nASSISTANT:"},
    "instructblip": {"kind": "text", "text": "Question: " + TEXT + " Answer:"},
    "mplug_owl2": {"kind": "text", "text": "USER: <|image|>" + TEXT + "\nASSISTANT:"},
    "qwen2_vl": {"kind": "chat", "text": TEXT},
}
# prompts of unequal length, one of them without a spatial word
ASKED = ["Is there a car in the image?", "Is there an umbrella?", "Is there a car there in the image?"]
# the same for the family whose code cannot pad
ASKED_ALIKE = ["Is there a car in the image?", "Is there a car there the image?", "Is there a cup in the image?"]
SETTINGS = {
    "band": {"first": 14, "end": 20, "of": 32},
    "image_span": "image",
    "nouns": "as_run",
    "spatial_words": ["in", "on"],
}
TOKEN_SETS = {"llama": {"yes": [3582, 8241, 4874, 3869], "no": [1217, 3782, 694, 1939]}}
RUN = {
    **{"shards": 2, "engine": "reference", "batch_size": 5, "device": "cpu", "dtype": "float32"},
    **{"quantisation": "none", "attention": "sdpa", "threads": 1},
}


def write_checkpoint(name: str, folder) -> None:
    torch.manual_seed(3)
    model = builders.build(name, SHAPE, builders.SIZES[name])
    spread(model, 0.1)
    builders.set_special_ids(name, model)
    model.save_pretrained(folder)
    builders.save_processor(name, tokenizers.for_model(name), folder)
    held = {path.relative_to(folder).as_posix(): files.sha256(path) for path in folder.rglob("*") if path.is_file()}
    files.write_json({"model": name, "files": held}, folder / "checkpoint.json")


ORIGIN = {"dataset": "tiny", "split": "random", "revision": "r", "sha256": "0"}


def template(name: str) -> prompts.Template:
    return prompts.Template("as_run", **TEMPLATES[name])


def asked_of(name: str) -> list[str]:
    return ASKED_ALIKE if name == "mplug_owl2" else ASKED


def batch(adapter, name: str, pictures) -> dict:
    return adapter.encode(pictures[: len(ASKED)], [adapter.render(template(name), asked) for asked in asked_of(name)])


def conditions(name: str) -> dict:
    settings = {
        **{"family": FAMILIES.get(name, name), "model_id": "tiny", "revision": "r", "remote_code": True},
        "template": {"name": "as_run"} | TEMPLATES[name],
    }
    return {"model": name, "settings": settings, "run": RUN, "study": "mini", "seed": 1, "code": "c"}


def eager_maps(folder, name: str, pictures) -> np.ndarray:
    """All attention of a plain eager run: (layers, batch, positions, positions), mean over heads."""
    adapter = load_adapter(FAMILIES.get(name, name), folder, Precision(attention="eager"))
    inputs = batch(adapter, name, pictures)
    more = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True, "output_attentions": True}
    out = adapter.model.generate(**inputs, **more)
    return torch.stack(out.attentions[0]).mean(2).detach().numpy()


STAGE = {"images": 16, "batch": 4, "steps": 2, "rate": 0.003}
CLIPS = {"clip_l": {"tower": "base"} | STAGE, "clip_b": {"tower": "own", "input": 24} | STAGE}


def clip_settings(name: str) -> dict:
    return {"seed": 2, "world": {}, "shape": SHAPE, "clip": CLIPS[name]}
