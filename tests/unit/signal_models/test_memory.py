"""Running out of memory: which setting helps, wherever it happens."""

import pytest
import torch

from workflow.lib.errors import BadInput
from workflow.models import attention, clip, engines, noise, subject
from workflow.models import signals as measured_signals
from workflow.models.precision import Precision

from .subjects import SETTINGS, TOKEN_SETS, conditions


def exhausted(*_given, **_named):
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("x"), RuntimeError("can't allocate memory: you tried 9 bytes")]
)
def test_too_little_memory_names_the_setting_that_helps(error):
    def sentence(**precision):
        with pytest.raises(BadInput) as caught, Precision(**precision).shortage_named("while it slept", "lower x"):
            raise error
        return str(caught.value)

    assert sentence() == (
        "cpu ran out of memory while it slept: lower x, or set run.dtype to float16 or run.quantisation to nf4."
    )
    assert sentence(dtype="float16").endswith(": lower x, or set run.quantisation to nf4.")
    assert "take a larger one" in sentence(dtype="float16", quantisation="nf4")
    with pytest.raises(RuntimeError, match="shapes"), Precision().shortage_named("while it slept"):
        raise RuntimeError("shapes do not fit")


def test_too_little_memory_to_load_a_model(polls, root, folders, monkeypatch, tmp_path):
    monkeypatch.setattr(subject, "load_adapter", exhausted)
    checkpoint = str(root / "llava15/checkpoint.json")
    with pytest.raises(BadInput, match=r"^cpu ran out of memory while llava15 was loaded: set run\.dtype to float16"):
        subject.load(*polls, checkpoint, **conditions("llava15"))


BATCH = (
    r"^cpu ran out of memory with 5 questions at a time: lower run\.batch_size in the configuration .1 is the least."
)


@pytest.mark.parametrize(
    ("module", "name"),
    [(attention, "positions"), (measured_signals, "from_logits"), (measured_signals, "wanted_rows")],
)
def test_too_little_memory_in_the_instrumented_pass(polls, root, folders, tmp_path, monkeypatch, module, name):
    monkeypatch.setattr(module, name, exhausted)
    given = (*polls, str(root / "llava15/checkpoint.json"), str(tmp_path / "0.parquet"))
    with pytest.raises(BadInput, match=BATCH):
        measured_signals.infer(*given, shard=0, signals=SETTINGS, **conditions("llava15"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [
        ("random_image", engines.rows, "stored"),
        ("gaussian_embedding", attention, "positions"),
        ("gaussian_embedding", noise, "draw"),
    ],
)
def test_too_little_memory_in_a_noise_pass(polls, root, folders, tmp_path, monkeypatch, kind, module, name):
    monkeypatch.setattr(module, name, exhausted)
    given = (*polls, str(root / "llava15/checkpoint.json"), str(tmp_path / "0.parquet"))
    with pytest.raises(BadInput, match=BATCH):
        noise.infer(
            *given, kind=kind, noise={"seed": 1, "scale": 1.0}, shard=0, token_sets=TOKEN_SETS, **conditions("llava15")
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "name"), [(clip.CLIPModel, "from_pretrained"), (clip, "crop_cosines"), (clip, "tower_states")]
)
def test_too_little_memory_for_clip(polls, root, clip_folders, tmp_path, monkeypatch, module, name):
    monkeypatch.setattr(module, name, exhausted)
    named = {which: str(clip_folders[f"clip_{which}"] / "checkpoint.json") for which in "bl"}
    given = (*polls, str(root / "llava15/checkpoint.json"), str(tmp_path / "clip.parquet"))
    with pytest.raises(
        BadInput, match=r"^cpu ran out of memory with the audited model and CLIP in it: set signals\.clip"
    ):
        clip.infer(*given, clip=named, pattern="as_run", **conditions("llava15"))
    assert not list(tmp_path.iterdir())
