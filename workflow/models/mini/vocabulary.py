"""Training with the vocabulary rows in use, and the expansion to the published size.

Only tokens that occur in prompts or answers get rows of their own; all others share one filler row whose logit
is raised by log(number of fillers). This is the full softmax of a table with equal filler rows.
"""

import math
from dataclasses import dataclass

import torch


def word_of(piece: str) -> str:
    """Return the word in a piece, without the mark of a leading space, so that vocabularies can share rows."""
    return "\n" if piece in ("<0x0A>", "Ċ") else piece.lstrip("▁Ġ") or " "


@dataclass(frozen=True)
class Vocabulary:
    """The token ids in use (sorted), the words they stand for and the size of the full vocabulary."""

    ids: tuple[int, ...]
    words: tuple[str, ...]
    size: int

    @property
    def filler(self) -> int:
        """Row of the shared filler."""
        return len(self.ids)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the compact rows of token ids; every id must be in use."""
        known = torch.tensor(self.ids)
        rows = torch.searchsorted(known, ids.contiguous()).clamp(max=len(known) - 1)
        if not torch.equal(known[rows], ids):
            raise ValueError("a token id is not among those in use")
        return rows

    def row(self, token_id: int) -> int:
        """Return the compact row of one token id."""
        return self.ids.index(token_id)

    def log_filler(self) -> float:
        """Return log(number of filler ids)."""
        return math.log(self.size - len(self.ids))

    def expand(self, table: torch.Tensor, settings: dict) -> torch.Tensor:
        """Return the full table: rows in use as trained, all others as scattered copies of the filler row.

        Parameters
        ----------
        table
            Compact table (ids in use + 1, width).
        settings
            seed, scale (relative spread of the filler rows along the shared row) and jitter (spread in any
            direction, in standard deviations of the table).
        """
        generator = torch.Generator().manual_seed(settings["seed"])
        width = table.shape[1]
        scale = torch.randn(self.size, 1, generator=generator).clamp(-2, 2)
        noise = torch.randn(self.size, width, generator=generator)
        full = table[-1] * (1 + settings["scale"] * scale) + settings["jitter"] * table[:-1].std() * noise
        full[list(self.ids)] = table[:-1]
        return full


def in_use(tokenizer, size: int, prompts: torch.Tensor, others: list[int]) -> Vocabulary:
    """Return the vocabulary of the tokens in some prompts and of some further ids."""
    ids = tuple(sorted({*prompts.unique().tolist(), *others}))
    return Vocabulary(ids, tuple(word_of(piece) for piece in tokenizer.convert_ids_to_tokens(list(ids))), size)
