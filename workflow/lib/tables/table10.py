"""Table 10 of the first paper: the surface forms, how they are tokenised, and the dynamic set."""

import json

import pandas as pd

from workflow.lib import forms
from workflow.lib.tables import render
from workflow.lib.tokens import YES_FORMS


def build(encoded: pd.DataFrame, model: str, display: str, note: str = "") -> render.Table:
    """Print how each of the eight forms is encoded and whether it enters the dynamic single-token set.

    Parameters
    ----------
    encoded : pandas.DataFrame
        Forms of the model (`forms.load`).
    model : str
        What the table is about.
    display : str
        Its printed name.
    note : str
        Sentence under the table; empty for none.

    Notes
    -----
    The column ``row`` names a form without spaces ("spaced_Yes" for " Yes"), so that a cell can be pointed at;
    ``id`` is the form's last id, the word itself.
    """
    rows = render.model_rows(encoded, model, f"tokens/{model}.csv")
    rows = forms.by_form(rows, f"tokens/{model}.csv")
    frame = pd.DataFrame(
        {
            "study": rows["study"],
            "row": [form.replace(" ", "spaced_") for form in rows["form"]],
            "answer": ["yes" if form in YES_FORMS else "no" for form in rows["form"]],
            "form": rows["form"],
            "ids": [json.dumps(list(ids)) for ids in rows["ids"]],
            "tokens": rows["ids"].map(len),
            "id": [ids[-1] for ids in rows["ids"]],
            "single": rows["single"],
            "in_dynamic_set": rows["in_dynamic_set"],
            "emitted": rows["emitted"],
        }
    )
    return render.Table(
        label="Table 10",
        caption=f"Surface forms of yes and no in the tokenizer of {display}, and the dynamic single-token set.",
        study=render.study_of(rows),
        frame=frame,
        columns=[
            render.text("form", "Form", forms.quoted),
            render.text("ids", "Tokenization"),
            render.Column(
                "In dynamic set?",
                lambda row: (
                    f"{'yes' if row['in_dynamic_set'] else 'no'} ({'single' if row['single'] else 'multi'}-token)"
                ),
                numeric=False,
            ),
        ],
        notes=[note] if note else [],
    )
