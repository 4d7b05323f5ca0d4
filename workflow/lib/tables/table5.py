"""Table 5 of the first paper: the eight yes and no ids and what they decode to."""

import pandas as pd

from workflow.lib import forms
from workflow.lib.errors import BadInput
from workflow.lib.tables import render
from workflow.lib.tokens import LEGACY_8TOK

COLUMNS = ("study", "answer", "token_id", "surface", "piece", "decoded", "emitted", "count")


def build(encoded: pd.DataFrame, model: str, note: str = "") -> render.Table:
    """Print what each id of the eight-token set is in the tokenizer in force.

    Parameters
    ----------
    encoded : pandas.DataFrame
        Forms and declared ids of the model (`forms.load`).
    model : str
        What the table is about.
    note : str
        Sentence under the table; empty for none.

    Notes
    -----
    ``surface`` is the vocabulary piece with its mark of a leading space as a space: decoding one id alone drops
    that space in some versions of the tokenizers library, so ``decoded`` is kept beside it.
    """
    rows = render.model_rows(encoded, model, f"tokens/{model}.csv")
    meanings = forms.meanings(rows)
    lines = []
    for answer, ids in (("yes", LEGACY_8TOK.yes), ("no", LEGACY_8TOK.no)):
        for token in ids:
            piece, decoded, count = meanings.get(token, ("", "", 0))
            if not piece:
                raise BadInput(
                    f"tokens/{model}.csv does not say what id {token} is: make it with a row of every declared id."
                )
            line = (answer, token, forms.surface(piece), piece, decoded, count > 0, count)
            lines.append(dict(zip(COLUMNS, (render.study_of(rows), *line), strict=True)))
    return render.Table(
        label="Table 5",
        caption="Ids of the eight-token set and the surface forms that they stand for; * marks first tokens.",
        study=render.study_of(rows),
        frame=pd.DataFrame(lines),
        columns=[
            render.text("answer", "Answer"),
            render.Column("Token ID", lambda row: f"{row['token_id']}{'*' if row['emitted'] else ''}"),
            render.text("surface", "Decoded surface form", forms.quoted),
        ],
        notes=[note] if note else [],
    )
