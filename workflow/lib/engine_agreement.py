"""How far two engines agree: logits, emitted tokens and answers of one model to the same questions."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from workflow.lib import answers, items, logits
from workflow.lib.errors import BadInput
from workflow.lib.logits import Logits

REFERENCE = "reference"
# a sample is not cut into shards, and another script asks for it
MAY_DIFFER = ("engine", "shards", "code")
# fmt: off
COLUMNS = (
    "study", "model", "split", "engine", "template", "dtype", "quantisation", "device", "images", "questions",
    "max_delta_logit", "argmax_flips", "text_flips", "readout", "answer_flips", "smallest_margin", "margins_near_zero",
)
# fmt: on


def sample(table: pa.Table, shards: int, images: int) -> pa.Table:
    """Return the questions about the first images of a split, as far as they lie in its first shard.

    That shard is run anyway, so only the other engine has to run for the comparison.

    Parameters
    ----------
    table : pyarrow.Table
        Items of the split.
    shards : int
        Into how many shards it is cut.
    images : int
        How many images are wanted.
    """
    first = table.take(items.shard_rows(table["image"].to_pylist(), 0, shards))
    names = first["image"].to_pylist()
    wanted = set(list(dict.fromkeys(names))[:images])
    return first.take([row for row, name in enumerate(names) if name in wanted])


def compare(
    runs: Sequence[tuple[Logits, str]], questions: pa.Table, names: Sequence[str], precision: str
) -> pd.DataFrame:
    """Compare the rows of another engine with those of the reference.

    Parameters
    ----------
    runs : two of (Logits, file name)
        One of them by the engine `REFERENCE`; alike in all else that may move a logit. Rows beyond the sample
        are ignored.
    questions : pyarrow.Table
        Items of the sample.
    names : sequence of str
        Readouts; each gives a row.
    precision : str
        Format to which logits are rounded before answers are read (`readouts.PRECISIONS`).

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`. ``max_delta_logit`` is taken over the declared candidates and the top ids that both list.
        ``text_flips`` counts questions with other generated ids. ``smallest_margin`` is the smallest distance of
        an answer of the reference from a tie; ``margins_near_zero`` counts its margins within twice the largest
        difference, which such a difference could flip. Both are "" for a readout that has no margins.

    Raises
    ------
    BadInput
        Where the runs do not differ in the engine, differ in anything else, or lack a question.
    """
    engines = [held.identity["engine"] for held, _ in runs]
    paths = [path for _, path in runs]
    if engines.count(REFERENCE) != 1:
        raise BadInput(
            f"{paths[0]} and {paths[1]} are by the engines {engines[0]} and {engines[1]}: compare one with {REFERENCE}."
        )
    fields = logits.differing(runs[0][0].identity, runs[1][0].identity, MAY_DIFFER)
    if fields:
        raise BadInput(
            f"{paths[0]} and {paths[1]} differ in more than the engine ({'; '.join(fields)}): run one of them again "
            "under the other's conditions."
        )
    order = [engines.index(REFERENCE), 1 - engines.index(REFERENCE)]
    (reference, _), (other, _) = pair = [(_rows_of(*runs[i], questions), paths[i]) for i in order]
    answered = [answers.read_all(held, questions, names, precision, path)[0].to_pandas() for held, path in pair]
    largest = delta(reference, other)
    identity = reference.identity
    shared = {name: identity[name] for name in ("study", "model", "split", "template", "dtype", "quantisation")}
    shared |= {
        "engine": other.identity["engine"],
        "device": identity["device_name"],
        "images": len(set(questions["image"].to_pylist())),
        "questions": len(questions),
        "max_delta_logit": largest,
        "argmax_flips": _unequal(reference, other, "argmax_id"),
        "text_flips": _unequal(reference, other, "generated_ids"),
    }
    rows = []
    for name in names:
        ours, theirs = (frame[frame["readout"] == name] for frame in answered)
        margins = ours["margin"].dropna().abs().to_numpy(np.float64)
        near = {"smallest_margin": "", "margins_near_zero": ""}
        if len(margins):
            near = {
                "smallest_margin": float(margins.min()),
                "margins_near_zero": int((margins <= 2 * largest).sum()),
            }
        flips = int((ours["answer"].to_numpy() != theirs["answer"].to_numpy()).sum())
        rows.append(shared | {"readout": name, "answer_flips": flips} | near)
    return pd.DataFrame(rows, columns=COLUMNS)


def delta(first: Logits, second: Logits) -> float:
    """Return the largest absolute difference of a stored logit between rows of the same questions.

    Compared are the declared candidates, and of the top ids those that both list.
    """
    largest = float(np.abs(first.candidate_logits.astype(np.float64) - second.candidate_logits).max(initial=0))
    tops = (
        [
            dict(zip(ids, values, strict=True))
            for ids, values in zip(held.table["top_ids"].to_pylist(), held.table["top_logits"].to_pylist(), strict=True)
        ]
        for held in (first, second)
    )
    for one, two in zip(*tops, strict=True):
        largest = max([largest, *(abs(one[token] - two[token]) for token in one.keys() & two.keys())])
    return largest


def _rows_of(held: Logits, path: str, questions: pa.Table) -> Logits:
    places = {key: row for row, key in enumerate(_keys(held.table))}
    wanted = _keys(questions)
    missing = [key for key in wanted if key not in places]
    if missing:
        raise BadInput(f"{path} lacks question {missing[0]} of the sample: delete it to run it again.")
    table = held.table.take([places[key] for key in wanted])
    return Logits(table, {**held.identity, "rows": len(table)})


def _keys(table: pa.Table) -> list[tuple]:
    return list(zip(*(table[name].to_pylist() for name in items.KEY), strict=True))


def _unequal(first: Logits, second: Logits, column: str) -> int:
    return sum(a != b for a, b in zip(first.table[column].to_pylist(), second.table[column].to_pylist(), strict=True))
