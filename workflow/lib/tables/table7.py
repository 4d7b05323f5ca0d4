"""Table 7 of the first paper: paired transitions from the eight-token to the two-token decision."""

import pandas as pd

from workflow.lib.tables import render

RATES = {"phi": "φ", "rho_N": "ρ_N"}
_COPIED = [
    "study",
    "split",
    "label",
    "yes_yes",
    "yes_no",
    "no_yes",
    "no_no",
    "rate",
    "numerator",
    "denominator",
    "value",
]


def build(transitions: pd.DataFrame, model: str, note: str = "") -> render.Table:
    """Count each pair of decisions by split and label, with the flip rate of the no decisions.

    Parameters
    ----------
    transitions : pandas.DataFrame
        ``statistics/transitions.csv`` (reference legacy_8tok, tested legacy_2tok).
    model : str
        Model that the table is about.
    note : str
        Sentence under the table; empty for none.
    """
    rows = render.model_rows(transitions, model, "statistics/transitions.csv")
    rows = rows[(rows["reference"] == "legacy_8tok") & (rows["tested"] == "legacy_2tok")]
    rows = render.in_split_order(rows.sort_values("label", ascending=False, kind="stable"))
    return render.Table(
        label="Table 7",
        caption="Eight-token (8) against two-token (2) decision of the same questions: y is yes, n is no.",
        study=render.study_of(rows),
        frame=rows[_COPIED].reset_index(drop=True),
        columns=[
            render.text("split", "Split", str.capitalize),
            render.text("label", "Label"),
            render.value("yes_yes", "8y→2y", 0),
            render.value("yes_no", "8y→2n", 0),
            render.value("no_yes", "8n→2y", 0),
            render.value("no_no", "8n→2n", 0),
            render.text("rate", "Rate", RATES.__getitem__),
            render.Column("Value", _fraction),
        ],
        notes=[note] if note else [],
    )


def _fraction(row: dict) -> str:
    counts = f"{render.number(row['numerator'], 0)}/{render.number(row['denominator'], 0)}"
    return f"{counts} = {render.number(row['value'], 3)}"
