"""Readouts: pure functions from a stored first-token distribution, or from a text, to yes / no / unknown.

All readouts stand in one registry, in the order in which results list them. A token-set readout compares the
logits of two groups of ids; a string readout parses what was generated. Both see stored rows only, so a new
readout on old logits needs no model.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pandas as pd

from workflow.lib import parsers, tokens
from workflow.lib.errors import BadInput
from workflow.lib.tokens import TokenSet

PRECISIONS = ("as_stored", "float16", "bfloat16")
"""Formats to which logits may be rounded before they are compared."""


class LogitsView(Protocol):
    """The rows of one shard or split as a readout sees them; n rows, k declared candidate ids.

    Attributes
    ----------
    ids : sequence of int, length k
        Declared candidate ids, the columns of ``logits``.
    logits : ndarray of float32, shape (n, k)
        Raw logits (natural-log scale, before any logits processor).
    generated_text, returned_text : sequence of str, length n
        Text of the newly generated tokens alone; text of everything that generate() returned.
    labels : sequence of str, length n
        True answers, yes or no.
    dynamic : TokenSet or None
        The set derived from the model's tokenizer, out of the shard's metadata.
    source : str, optional
        File name, for messages.
    """

    ids: Sequence[int]
    logits: np.ndarray
    generated_text: Sequence[str]
    returned_text: Sequence[str]
    labels: Sequence[str]
    dynamic: TokenSet | None


@dataclass(frozen=True)
class Readout:
    """One rule, declared in full.

    Attributes
    ----------
    name, source : str
        Registry name; place in the paper or origin of the parser.
    kind : "token_set" or "string"
    token_set : TokenSet, "dynamic" or None
        Ids compared; "dynamic" stands for the set in the shard's metadata; None for a string readout.
    aggregator : "max", "logsumexp" or ""
        How the logits of one side become one number: their maximum, as greedy decoding picks a token, or the
        logarithm of the summed probability (the vocabulary's normaliser cancels in the comparison).
    tie : "no" or ""
        Answer where both sides are equal: the comparison is strict, so a tie says no (and is flagged).
    text : "generated", "returned" or ""
        Text that a string readout parses.
    parser : parsers.Parser or None
    """

    name: str
    kind: Literal["token_set", "string"]
    source: str
    token_set: TokenSet | Literal["dynamic"] | None = None
    aggregator: Literal["max", "logsumexp", ""] = ""
    tie: Literal["no", ""] = ""
    text: Literal["generated", "returned", ""] = ""
    parser: parsers.Parser | None = None


@dataclass(frozen=True)
class Answers:
    """What a readout says; n rows.

    Attributes
    ----------
    readout : str
    answer : ndarray of str, shape (n,)
        "yes", "no" or "unknown".
    tie : ndarray of bool, shape (n,)
        True where both sides were exactly equal; never for a string readout.
    margin : ndarray of float32, shape (n,), or None
        Yes side minus no side in logits: positive says yes, 0 is a tie. None for a string readout.
    """

    readout: str
    answer: np.ndarray
    tie: np.ndarray
    margin: np.ndarray | None

    def frame(self) -> pd.DataFrame:
        """Return columns readout, answer, tie and margin (nullable Float32, null for a string readout)."""
        margin = np.zeros(len(self.answer), np.float32) if self.margin is None else self.margin
        null = np.full(len(self.answer), self.margin is None)
        return pd.DataFrame(
            {
                "readout": pd.array([self.readout] * len(self.answer), dtype="str"),
                "answer": pd.array(self.answer, dtype="str"),
                "tie": self.tie,
                "margin": pd.arrays.FloatingArray(margin, null),
            }
        )


def _token_set(name: str, token_set: TokenSet | Literal["dynamic"], aggregator: str, source: str) -> Readout:
    return Readout(name, "token_set", source, token_set=token_set, aggregator=aggregator, tie="no")


def _string(name: str, text: str, parser: parsers.Parser) -> Readout:
    return Readout(name, "string", parser.source, text=text, parser=parser)


REGISTRY: dict[str, Readout] = {
    readout.name: readout
    for readout in (
        _token_set("legacy_2tok", tokens.LEGACY_2TOK, "max", "Section 3.1, two-token protocol"),
        _token_set("legacy_8tok", tokens.LEGACY_8TOK, "max", "Section 3.1, eight-token protocol; Algorithm 1"),
        _token_set("dynamic_single", "dynamic", "max", "Section 6, Listing 1"),
        _token_set("dynamic_logsumexp", "dynamic", "logsumexp", "Section 3.1, the aggregator argued against"),
        _string("string_parse", "generated", parsers.PARSERS["string_parse"]),
        _string("string_parse_returned", "returned", parsers.PARSERS["string_parse"]),
        *(_string(name, "generated", parser) for name, parser in parsers.PARSERS.items() if name != "string_parse"),
    )
}
"""All readouts by name, in the order in which results list them."""

NAMES = tuple(REGISTRY)


def get(name: str) -> Readout:
    """Return the readout of that name; BadInput with the nearest and all known names where there is none."""
    if name in REGISTRY:
        return REGISTRY[name]
    nearest = difflib.get_close_matches(str(name), NAMES, n=1, cutoff=0.0)[0]
    raise BadInput(f"readout {name!r} is not known, the nearest is {nearest!r}: choose one of {', '.join(NAMES)}.")


def read(name: str, view: LogitsView, precision: str = "as_stored") -> Answers:
    """Return the answers of one readout on stored rows.

    Parameters
    ----------
    name : str
        Registry name.
    view : LogitsView
        The rows; an empty view gives empty arrays.
    precision : "as_stored", "float16" or "bfloat16"
        Format to which logits are rounded (to nearest, ties to even) before anything is compared; rounding
        can make ties. The papers' runs compared 16-bit values. String readouts have no logits and ignore it.

    Raises
    ------
    BadInput
        Unknown readout or precision; an id of the set that the rows do not declare; NaN or an infinity at any
        declared id; a dynamic readout on rows without a tokenizer-derived set; unlike lengths.
    """
    readout = get(name)
    if precision not in PRECISIONS:
        raise BadInput(f"precision {precision!r} is not known: choose one of {', '.join(PRECISIONS)}.")
    if readout.kind == "string":
        return _parsed(readout, view)
    token_set = resolved(readout, view)
    columns = {token: column for column, token in enumerate(view.ids)}
    undeclared = [token for token in token_set.ids if token not in columns]
    if undeclared:
        raise BadInput(
            f"{_source(view)}: readout {name} needs token id {undeclared[0]}, which these rows do not "
            f"declare (declared: {', '.join(map(str, view.ids))}): infer again with it among the candidates."
        )
    logits = rounded(_checked(view), precision, _source(view))
    yes, no = (
        _AGGREGATORS[readout.aggregator](logits[:, [columns[token] for token in side]])
        for side in (token_set.yes, token_set.no)
    )
    return Answers(name, np.where(yes > no, parsers.YES, parsers.NO), yes == no, (yes - no).astype(np.float32))


def resolved(readout: Readout, view: LogitsView) -> TokenSet:
    """Return the token set that a token-set readout compares on these rows."""
    if readout.token_set != "dynamic":
        return readout.token_set
    if view.dynamic is None:
        raise BadInput(
            f"{_source(view)}: readout {readout.name} needs the set derived from the model's tokenizer, but "
            "the metadata hold none: infer again with dynamic_single among the token sets."
        )
    return view.dynamic


def _parsed(readout: Readout, view: LogitsView) -> Answers:
    texts = view.generated_text if readout.text == "generated" else view.returned_text
    if len(texts) != len(view.labels):
        raise BadInput(
            f"{_source(view)}: {len(texts)} texts for {len(view.labels)} labels: give one text and one label a row."
        )
    verdicts = [readout.parser(text, label) for text, label in zip(texts, view.labels, strict=True)]
    return Answers(readout.name, np.array(verdicts, dtype="U7"), np.zeros(len(texts), bool), None)


def _source(view: LogitsView) -> str:
    return str(getattr(view, "source", "the logits"))


def _checked(view: LogitsView) -> np.ndarray:
    """Return the logits as float32 once shape, type and every value are in order."""
    logits = np.asarray(view.logits)
    if logits.ndim != 2 or logits.shape[1] != len(view.ids) or len(set(view.ids)) != len(view.ids):
        raise BadInput(
            f"{_source(view)}: logits of shape {logits.shape} do not fit {len(view.ids)} declared ids: give "
            "one column an id, each id once."
        )
    if logits.dtype not in (np.float32, np.float16):
        # rounding silently could make or hide ties
        raise BadInput(f"{_source(view)}: logits are {logits.dtype} where float32 is expected: store them as float32.")
    for problem, found, remedy in (
        (
            "NaN, not a number",
            np.isnan(logits),
            "the model's arithmetic failed there, so run that shard again",
        ),
        (
            "-inf",
            np.isneginf(logits),
            "a logits processor masked the token, so store the logits before any processor",
        ),
        (
            "+inf",
            np.isposinf(logits),
            "the model overflowed there, so run that shard again in a wider format",
        ),
    ):
        if found.any():
            row, column = np.argwhere(found)[0]
            raise BadInput(
                f"{_source(view)} row {row} (counted from 0): the logit of token id {view.ids[column]} is "
                f"{problem}; {remedy}."
            )
    return logits.astype(np.float32)


def rounded(logits: np.ndarray, precision: str, source: str = "the logits") -> np.ndarray:
    """Return finite float32 logits rounded to a 16-bit format and widened again; overflow is BadInput."""
    if precision == "as_stored":
        return logits
    if precision == "float16":
        with np.errstate(over="ignore"):
            narrow = logits.astype(np.float16).astype(np.float32)
    else:
        # bfloat16 is the upper half of a float32: add half a step, a hair less on even values, and cut
        bits = np.ascontiguousarray(logits, np.float32).view(np.uint32)
        narrow = ((bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)).view(np.float32)
    if not np.isfinite(narrow).all():
        worst = float(np.abs(logits).max())
        raise BadInput(f"{source}: a logit of magnitude {worst:g} overflows {precision}: compare as_stored.")
    return narrow


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    # ascending order makes the rounded sum independent of the order of the ids, so equal sides stay equal
    ascending = np.sort(logits.astype(np.float64), axis=1)
    top = ascending[:, -1:]
    return top[:, 0] + np.log(np.exp(ascending - top).sum(axis=1))


_AGGREGATORS = {"max": lambda logits: logits.max(axis=1), "logsumexp": _logsumexp}


def drop_in_answer(logits: Sequence[float], yes_ids: Sequence[int], no_ids: Sequence[int]) -> str:
    """Return the answer of the recommended readout (Listing 1): the larger of two maxima, a tie says no.

    For use in other code: needs nothing else of this project, and works on a list, an array or a tensor.

    Parameters
    ----------
    logits : sequence of float, length of the vocabulary
        Logits of the first answer token, such as ``out.scores[0][0]`` of a greedy ``generate``.
    yes_ids, no_ids : sequence of int
        Ids of the surface forms that are single tokens of the model's own tokenizer
        (`tokens.dynamic_single`).
    """
    return "yes" if max(logits[i] for i in yes_ids) > max(logits[j] for j in no_ids) else "no"


def warnings_for(name: str, argmax_ids: Sequence[int], token_set: TokenSet) -> list[str]:
    """Return a sentence for the sidecar where the set misses emitted first tokens, else an empty list.

    Outside the set Theorem 1 promises nothing: the readout compares ids that greedy decoding did not choose.
    """
    emitted = Counter(int(token) for token in argmax_ids)
    total = emitted.total()
    missed = sorted(
        ((token, count) for token, count in emitted.items() if token not in token_set.ids),
        key=lambda pair: (-pair[1], pair[0]),
    )
    if not missed:
        return []
    count = sum(number for _, number in missed)
    listed = ", ".join(f"id {token} in {number}" for token, number in missed[:5])
    more = f" and {len(missed) - 5} further ids" if len(missed) > 5 else ""
    return [
        f"{name} does not cover {count} of {total} emitted first tokens ({count / total:.1%}: "
        f"{listed}{more}), so those answers compare tokens that greedy decoding did not choose."
    ]


@dataclass(frozen=True)
class Agreement:
    """How a token-set readout and the parse of the first token agree (Theorem 1).

    Attributes
    ----------
    n, agree : int
        Rows; rows with equal answers.
    covered : int
        Rows whose emitted token belongs to the set.
    tied : int
        Covered rows with equal maxima of the two sides, the exception of the theorem.
    agree_untied : int
        Rows with equal answers among the covered rows without a tie.
    """

    n: int
    agree: int
    covered: int
    tied: int
    agree_untied: int

    @property
    def theorem_holds(self) -> bool:
        """Whether the answers are equal on every covered row without a tie, as Theorem 1 says."""
        return self.agree_untied == self.covered - self.tied


def agreement(
    first_token_text: Sequence[str], argmax_ids: Sequence[int], answers: Answers, token_set: TokenSet
) -> Agreement:
    """Compare a token-set readout with string parsing of the first token alone, row by row.

    Parameters
    ----------
    first_token_text : sequence of str, length n
        Decoded text of the greedy first token, and of nothing else.
    argmax_ids : sequence of int, length n
        Its id.
    answers : Answers, n rows
        Of the readout that compares ``token_set``.
    """
    parsed = np.array([parsers.string_parse(text) for text in first_token_text], dtype="U7")
    covered = np.isin(np.asarray(argmax_ids, dtype=np.int64), token_set.ids)
    equal = parsed == answers.answer
    untied = covered & ~answers.tie
    return Agreement(
        len(parsed),
        int(equal.sum()),
        int(covered.sum()),
        int((covered & answers.tie).sum()),
        int((equal & untied).sum()),
    )
