"""The noun that a poll asks about, and where words stand among the tokens of a prompt.

One revision of POPE's adversarial file ends 57 questions in "imange". The released code's pattern does not match
them and takes the last word instead, so their noun was "imange"; both patterns are here by name.
"""

import re
from collections.abc import Sequence

from workflow.lib.errors import BadInput

PATTERNS = {
    "as_run": re.compile(r"\bis there an? +(?P<noun>\S.*?) +in the image", re.IGNORECASE),
    "fixed": re.compile(r"\bis there an? +(?P<noun>\S.*?) +in the (?:image|imange)", re.IGNORECASE),
}
"""Patterns by name: "as_run" knows the usual spelling only, "fixed" also the misspelt ending."""
FRAME = frozenset({"is", "there", "a", "an", "in", "the", "image"})
"""Words of POPE's question about any object."""
_SPACES = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n"})


def noun(question: str, pattern: str = "as_run") -> str:
    """Return the noun of a question, or its last word where the pattern does not match.

    Parameters
    ----------
    question : str
        The poll as its file has it, without a suffix.
    pattern : "as_run" or "fixed"

    Raises
    ------
    BadInput
        An unknown pattern, or a question without a word.
    """
    match = _pattern(pattern).search(question)
    if match:
        return match["noun"]
    words = question.rstrip("? ").split()
    if not words:
        raise BadInput(f"question {question!r} has no word: correct the question file.")
    return words[-1]


def attended(question: str, pattern: str = "as_run") -> list[str]:
    """Return the words whose tokens stand for the noun in attention signals.

    With "as_run" these are all words outside `FRAME`, as the released code takes them, so a misspelt ending is
    among them; with "fixed" the noun alone.
    """
    _pattern(pattern)
    if pattern == "fixed":
        return [noun(question, pattern)]
    words = [word.strip(".,!?;:") for word in question.lower().split()]
    return [word for word in dict.fromkeys(words) if word and word not in FRAME]


def _pattern(name: str) -> re.Pattern:
    if name not in PATTERNS:
        raise BadInput(f"noun pattern {name!r} is not known: use {' or '.join(PATTERNS)}.")
    return PATTERNS[name]


def places(pieces: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the positions of all tokens that carry one of some words.

    Words are matched whole and in any case, over token borders where a word has several tokens. (The released
    code compared single tokens, so it saw no word of several tokens.)

    Parameters
    ----------
    pieces : sequence of str
        Vocabulary pieces of a prompt, with the marks "▁" or "Ġ" of a leading space; "" where a position holds no
        text, such as an image position.
    words : sequence of str

    Returns
    -------
    list of int
        Ascending, none twice; empty where no word occurs.
    """
    text, owners = [], []
    for position, piece in enumerate(pieces):
        # an empty position still separates words
        letters = piece.translate(_SPACES).lower() or "\n"
        text.append(letters)
        owners += [position] * len(letters)
    joined = "".join(text)
    found = set()
    for word in words:
        for match in re.finditer(rf"(?<!\w){re.escape(word.lower())}(?!\w)", joined):
            found.update(owners[match.start() : match.end()])
    return sorted(found)
