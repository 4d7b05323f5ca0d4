from types import SimpleNamespace

import pytest
import torch

from workflow.lib.errors import BadInput
from workflow.models.adapter import Adapter, load_adapter
from workflow.models.precision import Precision

END = 2
PROMPT = [[0, 5, 6], [5, 6, 7]]


class Model:
    """Generates fixed ids, and returns them behind whatever stands in ``front``."""

    generation_config = SimpleNamespace(eos_token_id=END)

    def __init__(self, front, new):
        self.front, self.new = front, new

    def generate(self, **_):
        new = torch.tensor(self.new)
        front = torch.tensor(self.front, dtype=torch.long).reshape(len(new), -1)
        logits = tuple(torch.zeros(len(new), 9) for _ in range(new.shape[1]))
        return SimpleNamespace(sequences=torch.cat([front, new], dim=1), logits=logits, scores=logits)


class Fixed(Adapter):
    def load(self, folder, precision):
        raise AssertionError("not used")

    def encode(self, images, prompts):
        raise AssertionError("not used")

    def open(self, image, prompts):
        raise AssertionError("not used")

    def image_positions(self, inputs):
        return [1] * len(inputs["input_ids"])


def generated(front, new):
    adapter = Fixed.__new__(Fixed)
    adapter.precision = Precision()
    adapter.model = Model(front, new)
    adapter.tokenizer = SimpleNamespace(eos_token_id=END)
    inputs = {"input_ids": torch.tensor(PROMPT), "attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]])}
    return adapter.generate(inputs, 3)


def test_new_tokens_are_told_from_a_prompt_that_comes_back():
    found = generated(PROMPT, [[8, END, 0], [7, 7, 7]])
    assert found.returned_prompt
    assert found.new_ids == [[8, END], [7, 7, 7]]
    assert found.returned_ids == [[5, 6, 8, END], [5, 6, 7, 7, 7, 7]]


def test_a_generate_that_returns_new_tokens_alone_is_recorded_as_such():
    found = generated([], [[8, END, 0], [7, 7, 7]])
    assert not found.returned_prompt
    assert found.returned_ids == found.new_ids == [[8, END], [7, 7, 7]]


def test_something_else_in_front_of_the_new_tokens_is_refused():
    with pytest.raises(BadInput, match="returned 6 tokens, 3 of them new, but the others are not the prompt"):
        generated([[0, 5, 6], [5, 6, 8]], [[8, END, 0], [7, 7, 7]])


def test_an_unknown_family_is_named(tmp_path):
    with pytest.raises(BadInput, match="model family 'lava' is not known: use one of instructblip, llava"):
        load_adapter("lava", tmp_path, Precision())
