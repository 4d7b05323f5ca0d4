"""Token sets: which vocabulary ids count as yes and which as no at the answer position.

An id belongs to one vocabulary. The LLaMA ids below mean other pieces in a Mistral or a Qwen vocabulary,
which is why the third set is derived from the model's own tokenizer and the other two carry the word legacy.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from workflow.lib.errors import BadInput

YES_FORMS = ("yes", "Yes", " yes", " Yes")
"""Surface forms of yes, in the order in which they are encoded (Section 6, whose listing repeats one)."""
NO_FORMS = ("no", "No", " no", " No")
"""Surface forms of no."""

Encode = Callable[[str], Sequence[int]]
"""Text to token ids, without special tokens."""


@dataclass(frozen=True)
class TokenSet:
    """Ids that count as yes and ids that count as no.

    Attributes
    ----------
    yes, no : tuple of int
        Vocabulary ids, none repeated, in the order given; any iterable of integers is accepted.

    Raises
    ------
    BadInput
        Where a side is empty, repeats an id, holds something that is no id, or shares an id with the other.
    """

    yes: tuple[int, ...]
    no: tuple[int, ...]

    def __post_init__(self) -> None:
        for side in ("yes", "no"):
            object.__setattr__(self, side, _ids(side, getattr(self, side)))
        shared = sorted(set(self.yes) & set(self.no))
        if shared:
            raise BadInput(
                f"token id {shared[0]} stands for yes and for no in one token set: give each id to one side "
                "only (an id shared by unlike words is usually the tokenizer's unknown token)."
            )

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids of both sides, ascending."""
        return tuple(sorted(self.yes + self.no))


def _ids(side: str, given: Iterable[int]) -> tuple[int, ...]:
    ids = tuple(given)
    for token in ids:
        # numpy integers pass through __index__; booleans and floats are slips, not ids
        if isinstance(token, bool) or not hasattr(token, "__index__") or int(token) < 0:
            raise BadInput(f"{token!r} on the {side} side of a token set is no token id: use integers from 0 upward.")
    ids = tuple(int(token) for token in ids)
    if not ids:
        raise BadInput(f"the {side} side of a token set is empty: name at least one token id.")
    if len(set(ids)) != len(ids):
        raise BadInput(f"the {side} side of a token set repeats an id ({list(ids)}): name each id once.")
    return ids


LEGACY_2TOK = TokenSet(yes=(3582,), no=(1217,))
"""Two-token rule in the LLaMA vocabulary (Section 3.1): yes against no without a leading space."""

LEGACY_8TOK = TokenSet(yes=(3582, 8241, 4874, 3869), no=(1217, 3782, 694, 1939))
"""Eight-token rule in the LLaMA vocabulary (Section 3.1, Table 5): yes, Yes, " yes", " Yes", and no alike."""


class FormRow(NamedTuple):
    """How a tokenizer encodes one surface form (the layout of Table 10).

    ``answer`` is "yes" or "no", ``ids`` what the form encodes to, ``single`` whether that is exactly one id.
    """

    answer: str
    form: str
    ids: tuple[int, ...]
    single: bool


def form_table(
    encode: Encode, yes_forms: Sequence[str] = YES_FORMS, no_forms: Sequence[str] = NO_FORMS
) -> list[FormRow]:
    """Return how each surface form is encoded, yes forms first; one row a form."""
    rows = []
    for answer, forms in (("yes", yes_forms), ("no", no_forms)):
        for form in forms:
            ids = tuple(int(token) for token in encode(form))
            rows.append(FormRow(answer, form, ids, len(ids) == 1))
    return rows


def dynamic_single(encode: Encode) -> TokenSet:
    """Return the token set of a tokenizer: all forms that encode to exactly one id (Section 6, Listing 1).

    Forms that share an id count once, in the order of the forms. With LLaMA's tokenizer "yes" and " Yes" are
    not what they look like: a space is put before the first word, so "yes" gives the word-initial id 4874
    and " yes" gives two ids.

    Parameters
    ----------
    encode : callable
        Text to ids without special tokens.

    Raises
    ------
    BadInput
        Where no form of a side is a single token, or the sides share an id; the message lists all encodings.
    """
    rows = form_table(encode)
    listed = "; ".join(f"{row.form!r} -> {list(row.ids)}" for row in rows)
    sides = {
        answer: tuple(dict.fromkeys(row.ids[0] for row in rows if row.answer == answer and row.single))
        for answer in ("yes", "no")
    }
    for answer, ids in sides.items():
        if not ids:
            raise BadInput(
                f"no {answer} form is a single token of this tokenizer ({listed}): dynamic_single does not "
                "exist for it; read the generated text with string_parse."
            )
    try:
        return TokenSet(**sides)
    except BadInput as problem:
        raise BadInput(f"dynamic_single cannot be derived from this tokenizer ({listed}): {problem}") from None


def declared_ids(sets: Iterable[TokenSet]) -> tuple[int, ...]:
    """Return the candidate ids that a shard must declare for these sets: their union, ascending."""
    return tuple(sorted({token for token_set in sets for token in token_set.ids}))
