"""How a tokenizer in force encodes the surface forms of yes and no, and what single ids mean to it.

The table (``tokens/{model}.csv``) has two kinds of rows. A surface form has the ids that it encodes to without
special tokens. A declared id has an empty form and its one id: vocabulary piece and decoded text say what the id is
in this vocabulary, which for the ids of another vocabulary is usually something else.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from workflow.lib import files, logits
from workflow.lib.errors import BadInput
from workflow.lib.tokens import LEGACY_8TOK, NO_FORMS, YES_FORMS, dynamic_single

COLUMNS = ("study", "model", "form", "ids", "single", "in_dynamic_set", "piece", "decoded", "emitted")
SURFACES = dict(zip(LEGACY_8TOK.yes + LEGACY_8TOK.no, YES_FORMS + NO_FORMS, strict=True))
"""Id of the LLaMA vocabulary to the surface form that it stands for, in the order of Table 5."""
_SPACES = {"▁": " ", "Ġ": " "}
RESTORE = "restore the released file"


def load(path: str | Path) -> pd.DataFrame:
    """Read and check the forms of one model.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`; ``ids`` as tuples of int, ``single`` and ``in_dynamic_set`` as bool.

    Raises
    ------
    BadInput
        A missing column, ids that are no JSON list of integers, a form twice, or a declared id with several ids.
    """
    frame = files.read_csv(path)
    for column in COLUMNS:
        if column not in frame:
            raise BadInput(f"{path} has no column {column!r}: make the table of forms again.")
    try:
        ids = [tuple(int(token) for token in json.loads(str(text))) for text in frame["ids"]]
    except (TypeError, ValueError):
        raise BadInput(f"{path}: column ids holds something else than JSON lists of integers: make it again.") from None
    frame = frame.assign(
        ids=ids, **{name: frame[name].astype(str).str.lower() == "true" for name in ("single", "in_dynamic_set")}
    )
    named = frame[frame["form"] != ""]
    if named["form"].duplicated().any():
        form = named.loc[named["form"].duplicated(), "form"].iloc[0]
        raise BadInput(f"{path} has form {form!r} twice: make the table of forms again.")
    for row in frame[frame["form"] == ""].to_dict("records"):
        if len(row["ids"]) != 1:
            raise BadInput(f"{path}: a row without a form has ids {list(row['ids'])} where one id is expected.")
    return frame


def surface(piece: str) -> str:
    """Return the text of a vocabulary piece, the mark of a leading space as a space."""
    return _SPACES.get(piece[:1], piece[:1]) + piece[1:]


def quoted(form: str) -> str:
    """Return a surface form as it is printed: in quotation marks where it begins with a space."""
    return f"‘{form}’" if form.startswith(" ") else form


def meanings(frame: pd.DataFrame) -> dict[int, tuple[str, str, int]]:
    """Return (piece, decoded text, times emitted) of every id that a table of `load` describes alone."""
    single = frame[frame["ids"].map(len) == 1]
    # what a row says about its id as such goes before what it says about a form
    ordered = pd.concat([single[single["form"] != ""], single[single["form"] == ""]])
    return {row["ids"][0]: (row["piece"], row["decoded"], int(row["emitted"])) for row in ordered.to_dict("records")}


def by_form(frame: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return the rows of the eight surface forms in their usual order; BadInput where one is missing."""
    rows = frame.set_index("form")
    missing = [form for form in YES_FORMS + NO_FORMS if form not in rows.index]
    if missing:
        raise BadInput(f"{source} has no row of form {missing[0]!r}: make the table of forms again.")
    return rows.loc[list(YES_FORMS + NO_FORMS)].reset_index()


def from_records(paths: Iterable[str | Path], study: str, model: str) -> pd.DataFrame:
    """Build the table of a model from what its released token audits say about its tokenizer.

    Parameters
    ----------
    paths : iterable of path
        Record files of one model (``token_audit``); each must state the same encodings.
    study, model : str
        Written into every row.

    Returns
    -------
    pandas.DataFrame
        The file's columns `COLUMNS` with ``ids`` as JSON. The records state no pieces; the text of an id is known
        where it was emitted.
    """
    stated: dict[str, tuple[int, ...]] = {}
    emitted: Counter[int] = Counter()
    texts: dict[int, str] = {}
    for path in paths:
        document = files.read_json(path)
        encodings = _encodings(path, document)
        if stated and encodings != stated:
            raise BadInput(f"{path} states other encodings than the files before it: {RESTORE}.")
        stated = encodings
        for row in document["results"]:
            emitted[row["top_token_id"]] += 1
            texts[row["top_token_id"]] = row["top_token_str"]
    dynamic = dynamic_single(lambda form: stated[form]).ids
    rows = []
    for form, ids in stated.items():
        single = len(ids) == 1
        text = texts.get(ids[0], "") if single else ""
        count = emitted[ids[0]] if single else 0
        rows.append((study, model, form, json.dumps(list(ids)), single, single and ids[0] in dynamic, "", text, count))
    for token in sorted(texts):
        row = study, model, "", json.dumps([token]), True, token in dynamic, "", texts[token], emitted[token]
        rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def from_logits(paths: Iterable[str | Path], study: str, model: str) -> pd.DataFrame:
    """Build the table of a model from what its merged logits say about the tokenizer in force.

    Parameters
    ----------
    paths : iterable of path
        Merged logits of one model, one file a split; all must have been made with the same tokenizer.
    study, model : str
        Written into every row.

    Returns
    -------
    pandas.DataFrame
        The file's columns `COLUMNS` with ``ids`` as JSON: a row for each surface form, then a row for each declared
        candidate id. ``emitted`` counts how often the id was the first generated token.
    """
    identity: dict = {}
    emitted: Counter[int] = Counter()
    for path in paths:
        stored = logits.read(path)
        for field in ("forms", "candidate_pieces", "candidate_texts"):
            if identity and stored.identity[field] != identity[field]:
                raise BadInput(f"{path} was made with another tokenizer than the splits before it ({field}).")
        identity = stored.identity
        emitted.update(stored.table["argmax_id"].to_pylist())
    pieces, texts = identity["candidate_pieces"], identity["candidate_texts"]
    dynamic = {token for side in identity["token_sets"]["dynamic_single"].values() for token in side}

    def row(form: str, ids: list[int]) -> tuple:
        single = len(ids) == 1
        token = str(ids[0])
        described = (pieces.get(token, ""), texts.get(token, ""), emitted[ids[0]]) if single else ("", "", 0)
        return (study, model, form, json.dumps(ids), single, single and ids[0] in dynamic, *described)

    rows = [row(form, identity["forms"][form]) for form in YES_FORMS + NO_FORMS]
    rows += [row("", [token]) for token in identity["candidate_ids"]]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _encodings(path: str | Path, document: object) -> dict[str, tuple[int, ...]]:
    summary = document.get("summary") if isinstance(document, Mapping) else None
    found: dict[str, tuple[int, ...]] = {}
    for name, forms in (("yes_form_to_ids", YES_FORMS), ("no_form_to_ids", NO_FORMS)):
        listed = summary.get(name) if isinstance(summary, Mapping) else None
        if not isinstance(listed, Mapping) or set(listed) != set(forms):
            raise BadInput(f"{path}: its summary has no {name} of the forms {', '.join(map(repr, forms))}: {RESTORE}.")
        found.update({form: tuple(int(token) for token in listed[form]) for form in forms})
    return found
