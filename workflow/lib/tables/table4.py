"""Table 4 of the first paper: F1 of four readouts on five models."""

from collections.abc import Mapping

import pandas as pd

from workflow.lib.errors import BadInput
from workflow.lib.tables import render

READOUTS = ("legacy_2tok", "legacy_8tok", "dynamic_single", "string_parse")
PUBLISHED = "published metrics"


def build(
    confusion: pd.DataFrame, display: Mapping[str, str], string_parse: Mapping[str, str], note: str = ""
) -> render.Table:
    """Collect F1 by model, split and readout.

    Parameters
    ----------
    confusion : pandas.DataFrame
        ``statistics/confusion.csv``, models in the order wanted.
    display : mapping
        Model to printed name.
    string_parse : mapping
        Model to the readout that stands in its string_parse column.
    note : str
        Sentence under the table; empty for none.

    Notes
    -----
    Models whose counts were derived from published metrics carry a dagger in the printed forms. A sentence under
    the table names the models on which a fixed-id readout misses every token that they emit (Algorithm 1).
    """
    study = render.study_of(confusion)
    cells = {(row.model, row.split, row.readout): row for row in confusion.itertuples(index=False)}
    lines, marked, missed = [], {}, {}
    for model in dict.fromkeys(confusion["model"]):
        parse = {"string_parse": string_parse[model]}
        for split in [name for name in render.SPLITS if any(key[:2] == (model, name) for key in cells)]:
            line = {"study": study, "model": display[model], "split": split}
            for column in READOUTS:
                readout = parse.get(column, column)
                if (model, split, readout) not in cells:
                    raise BadInput(
                        f"statistics/confusion.csv has no row of model {model}, split {split}, readout "
                        f"{readout}: read "
                        "the answers of that model again."
                    )
                cell = cells[model, split, readout]
                line[column] = float(cell.f1)
                marked[display[model]] = cell.basis == PUBLISHED
                if cell.uncovered != "" and int(cell.uncovered) == cell.n:
                    missed.setdefault(column, {})[display[model]] = None
            lines.append(line)
    warnings = [
        f"{readout} compares ids that are never the first generated token on {', '.join(names)} (see diagnostic)."
        for readout, names in missed.items()
    ]
    notes = ["† Counts derived from the published four-decimal metrics; no per-question records exist."]
    return render.Table(
        label="Table 4",
        caption="F1 of four readouts by model and split.",
        study=study,
        frame=pd.DataFrame(lines, columns=["study", "model", "split", *READOUTS]),
        columns=[
            render.text("model", "Model (tokenizer)", lambda name: name + (" †" if marked[name] else "")),
            render.text("split", "Split"),
            *(render.value(name, name, 4) for name in READOUTS),
        ],
        notes=[*(notes if any(marked.values()) else []), *warnings, *([note] if note else [])],
    )
