"""Table 11 of the first paper: four readouts under two prompt templates."""

from collections.abc import Mapping

import pandas as pd

from workflow.lib.errors import BadInput
from workflow.lib.tables import render

READOUTS = ("legacy_2tok", "legacy_8tok", "dynamic_single", "string_parse")
COLUMNS = ("study", "model", "template", "readout", "n", "f1", "precision", "recall", "yes_rate")


def build(templates: pd.DataFrame, model: str, display: Mapping[str, str], note: str = "") -> render.Table:
    """Print four readouts a template.

    Parameters
    ----------
    templates : pandas.DataFrame
        ``statistics/templates.csv``.
    model : str
        What the table is about.
    display : mapping
        Template to printed name, in the order of the table; templates that are not in it are left out.
    note : str
        Sentence under the table; empty for none.
    """
    rows = render.model_rows(templates, model, "statistics/templates.csv")
    cells = {(row["template"], row["readout"]): row for row in rows.to_dict("records")}
    for template in display:
        for readout in READOUTS:
            if (template, readout) not in cells:
                raise BadInput(
                    f"statistics/templates.csv has no row of model {model}, template {template}, readout {readout}: "
                    "read the answers of that template again."
                )
    frame = pd.DataFrame([cells[template, readout] for template in display for readout in READOUTS])
    questions, splits = frame["n"].max(), ", ".join(dict.fromkeys(frame["split"]))
    return render.Table(
        label="Table 11",
        caption=f"Four readouts on the first {questions:,} questions of split {splits} under two prompt templates.",
        study=render.study_of(rows),
        frame=frame[list(COLUMNS)],
        columns=[
            render.Column(
                "Prompt template",
                lambda row: display[row["template"]] if row["readout"] == READOUTS[0] else "",
                numeric=False,
            ),
            render.text("readout", "Readout"),
            render.value("f1", "F1", 4),
            render.value("precision", "Precision", 4),
            render.value("recall", "Recall", 4),
            render.value("yes_rate", "Yes-rate", 3),
        ],
        notes=[note] if note else [],
    )
