"""Table 13 of the first paper: confusion matrices under the eight-token rule."""

import pandas as pd

from workflow.lib.tables import render


def build(confusion: pd.DataFrame, model: str, note: str = "") -> render.Table:
    """Print the four cells of each split.

    Parameters
    ----------
    confusion : pandas.DataFrame
        ``statistics/confusion.csv``.
    model : str
        Model that the table is about.
    note : str
        Sentence under the table; empty for none.
    """
    rows = render.model_rows(confusion, model, "statistics/confusion.csv")
    rows = render.in_split_order(rows[rows["readout"] == "legacy_8tok"])
    return render.Table(
        label="Table 13",
        caption="Confusion matrices under the eight-token rule.",
        study=render.study_of(rows),
        frame=rows[["study", "split", "tp", "tn", "fp", "fn"]],
        columns=[
            render.text("split", "Split", str.capitalize),
            render.value("tp", "TP", 0),
            render.value("tn", "TN", 0),
            render.value("fp", "FP", 0),
            render.value("fn", "FN", 0),
        ],
        notes=[note] if note else [],
    )
