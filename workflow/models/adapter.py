"""What every model family has in common: loading, rendering, greedy generation.

An adapter is the only code that knows a family. It says how a prompt is rendered, where image positions lie,
and how a checkpoint is loaded; what is stored of the result is the engine's business. A new family is a new
module with a class ``Family``, a name in `FAMILIES`, and where transformers before 5 needs something else a module in
`workflow.models.older` and a name in `workflow.lib.environments.OLDER`.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from PIL import Image

from workflow.lib import environments
from workflow.lib.errors import BadInput
from workflow.lib.prompts import Template
from workflow.models import loaded
from workflow.models.opening import Opening
from workflow.models.precision import Precision

if TYPE_CHECKING:
    from transformers import DynamicCache

FAMILIES = ("llava", "llava_next", "instructblip", "qwen2_vl", "mplug_owl2")


@dataclass(frozen=True)
class Generation:
    """Greedy answers to a batch of prompts.

    Attributes
    ----------
    logits : Tensor
        Raw logits of the first new token, before any logits processor, float32, shape (batch, vocabulary).
    new_ids : list of list of int
        Generated ids without the prompt, cut after the end token.
    returned_ids : list of list of int
        All ids that ``generate`` returned, padding removed.
    returned_prompt : bool
        Whether ``generate`` returned the prompt in front of the new ids.
    image_tokens : list of int
        How many positions of each prompt hold the image.
    raw_choice : bool
        Whether tokens were chosen by the raw logits; false where the checkpoint's generation settings put a logits
        processor, such as a repetition penalty, in between.
    """

    logits: torch.Tensor
    new_ids: list[list[int]]
    returned_ids: list[list[int]]
    returned_prompt: bool
    image_tokens: list[int]
    raw_choice: bool


class Adapter(ABC):
    """A loaded checkpoint of one family.

    Parameters
    ----------
    folder : Path
        The checkpoint: configuration, weights, tokenizer and image processor as files.
    precision : Precision
        Number type, quantisation, device and attention kernel.

    Attributes
    ----------
    as_loaded : dict
        What the model really has of these (`workflow.models.loaded`); part of every identity.
    """

    attends_as_asked = True
    """Whether the decoder has the attention kernel that is asked for; else it has one of its own, which is recorded."""
    packs = True
    """Whether the decoder takes position ids and a mask for every pair of positions, so that several prompts can
    stand side by side in one sequence."""

    def __init__(self, folder: Path, precision: Precision) -> None:
        self.precision = precision
        self.load(Path(folder), precision)
        decoder = self.reader.get_decoder() if self.attends_as_asked else None
        self.as_loaded = loaded.verified(self.model, decoder, precision)
        self.model.eval()
        self.tokenizer.padding_side = "left"

    @abstractmethod
    def load(self, folder: Path, precision: Precision) -> None:
        """Set ``model``, ``tokenizer`` and, where the family has one, ``processor``."""

    @abstractmethod
    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return model inputs for a batch; prompts of unequal length are padded on the left."""

    @abstractmethod
    def image_positions(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """Return how many positions of each prompt hold the image."""

    @abstractmethod
    def open(self, image: Image.Image, prompts: Sequence[str]) -> Opening:
        """Compute what prompts about one image may share, which each family says here."""

    def batches(self, prompts: Sequence[str], batch_size: int) -> list[list[int]]:
        """Return which prompts, by their places, are read together, at most ``batch_size``; each place stands once."""
        places = range(len(prompts))
        return [list(places[start : start + batch_size]) for start in places[::batch_size]]

    @property
    def reader(self) -> torch.nn.Module:
        """The model that reads what an opening leaves: ids or embeddings in, logits out."""
        return self.model

    @torch.inference_mode()
    def read(
        self,
        feed: torch.Tensor,
        cache: "DynamicCache",
        positions: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        kept: torch.Tensor | int = 1,
    ) -> torch.Tensor:
        """Let the decoder read on, behind what the cache holds, and return next-token logits.

        Parameters
        ----------
        feed : Tensor
            Ids (batch, length) or embeddings (batch, length, width); the cache grows by ``length``.
        positions : Tensor, optional
            Position indices, (batch, length); by default the sequence simply goes on.
        mask : Tensor, optional
            What is added to attention scores, (batch, 1, length, cached + length); causal by default.
        kept : Tensor or int
            Indices of the positions whose logits are wanted; 1 for the last.

        Returns
        -------
        Tensor
            float32, (batch, positions kept, vocabulary).
        """
        name = "inputs_embeds" if feed.is_floating_point() else "input_ids"
        more = {} if positions is None else {"position_ids": positions}
        more |= {} if mask is None else {"attention_mask": mask}
        out = self.reader(**{name: feed}, cache=cache, use_cache=True, logits_to_keep=kept, **more)
        return out.logits.float()

    def render(self, template: Template, question: str) -> str:
        """Return the prompt: the filled text, or for kind ``chat`` that text as a user turn with an image."""
        text = template.fill(question)
        if template.kind == "text":
            return text
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
        return self.chat_renderer.apply_chat_template([turn], add_generation_prompt=True, tokenize=False)

    @property
    def chat_renderer(self) -> object:
        """The object that holds the checkpoint's chat template."""
        return self.processor

    def forms(self, text: str) -> list[int]:
        """Return the ids of a bare text, without special tokens (the encoding that dynamic sets are made of)."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    @torch.inference_mode()
    def generate(self, inputs: dict[str, torch.Tensor], count: int) -> Generation:
        """Generate up to ``count`` tokens greedily.

        Whether the prompt came back is decided by length and then checked token by token, because
        transformers changed this for one family between two releases.

        Raises
        ------
        BadInput
            Where what came back in front of the new tokens is not the prompt, or the device ran out of memory.
        """
        with self.shortage_named(len(inputs["input_ids"])):
            out = self.call_generate(
                inputs,
                max_new_tokens=count,
                do_sample=False,
                num_beams=1,
                return_dict_in_generate=True,
                output_scores=True,
            )
        steps = len(out.logits)
        prompt = inputs["input_ids"]
        returned_prompt = self.returned_prompt(out.sequences[:, :-steps], prompt, steps)
        new = [self._until_end(row) for row in out.sequences[:, -steps:].tolist()]
        mask = inputs["attention_mask"].bool()
        kept = [row[held].tolist() for row, held in zip(prompt, mask, strict=True)]
        returned = [a + b for a, b in zip(kept, new, strict=True)] if returned_prompt else new
        # without a processor both are the same tensors, so this costs nothing then
        raw = all(a is b or torch.equal(a, b) for a, b in zip(out.logits, out.scores, strict=True))
        return Generation(out.logits[0].float(), new, returned, returned_prompt, self.image_positions(inputs), raw)

    def returned_prompt(self, front: torch.Tensor, prompt: torch.Tensor, steps: int) -> bool:
        """Return whether the prompt came back in front of the new tokens; false where nothing did.

        Raises
        ------
        BadInput
            Where it is something else.
        """
        if front.shape[1] and not torch.equal(front, prompt):
            raise BadInput(
                f"generate returned {front.shape[1] + steps} tokens, {steps} of them new, but the others are not the "
                "prompt: this transformers version returns another layout; use the pinned one."
            )
        return front.shape[1] > 0

    def call_generate(self, inputs: dict[str, torch.Tensor], **settings: object) -> object:
        """Call the model's ``generate``; the output holds sequences, scores, and the raw logits of each step."""
        return self.model.generate(**inputs, **settings, output_logits=True)

    @contextmanager
    def shortage_named(self, questions: int) -> Iterator[None]:
        """Turn running out of device memory into a sentence that says what to lower."""
        remedy = "lower run.batch_size in the configuration (1 is the least)"
        with self.precision.shortage_named(f"with {questions} questions at a time", remedy):
            yield

    @property
    def ends(self) -> set[int]:
        """Ids after which an answer is over."""
        ends = self.model.generation_config.eos_token_id
        return {self.tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])}

    def _until_end(self, ids: list[int]) -> list[int]:
        ends = self.ends
        for position, token in enumerate(ids):
            if token in ends:
                return ids[: position + 1]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens; placeholders below 0 have no text."""
        return self.tokenizer.decode([token for token in ids if token >= 0], skip_special_tokens=True)


def family_class(family: str) -> type[Adapter]:
    """Return the adapter of a family for the transformers that is installed; BadInput names the known families."""
    if family not in FAMILIES:
        raise BadInput(f"model family {family!r} is not known: use one of {', '.join(sorted(FAMILIES))}.")
    return importlib.import_module(environments.adapter_module(family, metadata.version("transformers"))).Family


def load_adapter(family: str, folder: Path, precision: Precision) -> Adapter:
    """Load a checkpoint by its family; BadInput names the known families."""
    return family_class(family)(folder, precision)
