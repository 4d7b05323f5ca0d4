"""Noise in place of the image, on tiny random checkpoints of the true classes."""

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from workflow.lib.errors import BadInput
from workflow.models import engines, noise
from workflow.models.engines import Question
from workflow.models.mini import builders

from .subjects import ASKED, RUN, TEMPLATES, batch


def asked_about(pictures) -> tuple[list[Question], Callable[[Question], Image.Image]]:
    rendered = TEMPLATES["llava15"]["text"].replace("{question}", ASKED[0])
    questions = [Question("d", "random", number, f"{number % 2}.png", rendered) for number in range(5)]
    return questions, lambda question: pictures[question.id % 2]


def run_noise(adapter, pictures, kind: str, size: int = 2, seed: int = 4, scale: float = 1.0) -> dict:
    questions, open_image = asked_about(pictures)
    engine = noise.KINDS[kind]
    batches = engine(adapter, questions, open_image, [3869, 1939], size, settings={"seed": seed, "scale": scale})
    return {row["id"]: row for rows in batches for row in rows}


@pytest.mark.parametrize("kind", noise.KINDS)
def test_noise_depends_on_seed_and_key_alone(adapters, pictures, kind):
    adapter = adapters["llava15"]
    found = run_noise(adapter, pictures, kind)
    assert list(found) == [0, 1, 2, 3, 4]
    again = run_noise(adapter, pictures, kind, size=5)
    for number, row in found.items():
        assert row["image"] == f"{number % 2}.png"
        assert row["logit_3869"] == pytest.approx(again[number]["logit_3869"], abs=1e-4)
    other = run_noise(adapter, pictures, kind, seed=5)
    values = [held[number]["logit_3869"] for held in (found, other) for number in range(5)]
    # questions share prompts, and images in pairs, so only the draws tell them apart
    assert np.abs(np.subtract.outer(values, values))[~np.eye(10, dtype=bool)].min() > 1e-4


def test_gaussian_noise_of_no_width_is_the_main_run(adapters, pictures):
    questions, open_image = asked_about(pictures)
    main = [row for rows in engines.reference(adapters["llava15"], questions, open_image, [3869], 5) for row in rows]
    still = run_noise(adapters["llava15"], pictures, "gaussian_embedding", size=5, scale=0.0)
    strong = run_noise(adapters["llava15"], pictures, "gaussian_embedding", size=5, scale=2.0)
    for row in main:
        assert still[row["id"]]["logit_3869"] == pytest.approx(row["logit_3869"], abs=1e-5)
        assert abs(strong[row["id"]]["logit_3869"] - row["logit_3869"]) > 1e-3


@pytest.mark.parametrize("name", builders.SIZES)
def test_gaussian_noise_reaches_every_family(adapters, pictures, name):
    adapter = adapters[name]
    inputs = batch(adapter, name, pictures)
    questions = [Question("d", "random", number, "", "") for number in range(len(ASKED))]
    noisy = noise.NoisyAdapter(adapter, questions, {"seed": 1, "scale": 1.0}).generate(inputs, 2)
    clean = adapter.generate(inputs, 2)
    assert ((noisy.logits - clean.logits).abs().amax(1) > 1e-3).all()
    assert (adapter.generate(inputs, 2).logits - clean.logits).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("name", "size"), [("llava15", 48), ("llava16_mistral", 48), ("instructblip", 48), ("qwen2_vl", 20)]
)
def test_a_random_image_has_the_size_that_the_model_takes(adapters, name, size):
    assert noise.input_size(adapters[name], Image.new("RGB", (20, 20))) == (size, size)


def test_an_unknown_noise_is_named(polls, root):
    with pytest.raises(BadInput, match="noise 'grey' is not known: use one of random_image, gaussian_embedding"):
        noise.infer(*polls, "c", "out", kind="grey", noise={"seed": 1, "scale": 1}, run=RUN)
