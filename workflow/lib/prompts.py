"""Prompt templates: a question made into the text that a model reads.

A template is a name, a kind and a text with ``{question}`` in it. Kind ``text`` is the whole prompt, with the
image placeholder of the model family in its place; kind ``chat`` is the text of one user turn, which the
checkpoint's own chat template wraps. The text that the paper prints and the text that its released code used
are two templates by name, because they differ in the suffix "Answer yes or no only."
"""

import hashlib
from dataclasses import dataclass

from workflow.lib.errors import BadInput

KINDS = ("text", "chat")


@dataclass(frozen=True)
class Template:
    """One named template; ``text`` holds ``{question}`` exactly once."""

    name: str
    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"prompt template {self.name!r}: kind {self.kind!r} where one of {KINDS} is expected.")
        if self.text.count("{question}") != 1:
            raise BadInput(f"prompt template {self.name!r}: its text must hold {{question}} exactly once.")

    def fill(self, question: str) -> str:
        """Return the text with the question in place; other braces stay as they are."""
        return self.text.replace("{question}", question)


def digest(prompt: str) -> str:
    """Return the SHA-256 of a rendered prompt (UTF-8), 64 hex digits.

    Rows of equal prompt and image must have equal logits in a deterministic run, whichever split they stand in.
    """
    return hashlib.sha256(prompt.encode("utf-8")).hexdigest()
