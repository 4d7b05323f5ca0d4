"""Table 8 of the first paper: inference-time corrections on the adversarial split."""

from collections.abc import Mapping

import pandas as pd

from workflow.lib import corrections
from workflow.lib.errors import BadInput
from workflow.lib.tables import render

NUMBERS = ("f1", "precision", "recall", "tp", "fp", "fn", "tn")
ABSENT = "not in this study"
RELEASED = "released summary"


def build(rows: pd.DataFrame, model: str, split: str, variant: str, note: str = "") -> render.Table:
    """Print every row of the paper's table; a correction that the study does not know has empty cells.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``statistics/corrections.csv``. Where it has a correction both ways, the released summary stands.
    model, split : str
        What the table is about.
    variant : "as run" or "paper"
        Definition of the corrections; one whose text and code agree has the variant "as run" only.
    note : str
        Sentence under the table; empty for none.
    """
    if variant not in corrections.VARIANTS:
        raise BadInput(f"variant {variant!r} of the corrections is not known: use as run or paper.")
    rows = render.model_rows(rows, model, "statistics/corrections.csv")
    rows = rows[rows["split"] == split]
    study = render.study_of(rows)
    found: dict[tuple, Mapping] = {}
    for row in rows.to_dict("records"):
        key = row["method"], float(row["beta"]), row["variant"]
        if key not in found or row["basis"] == RELEASED:
            found[key] = row
    lines, recomputed = [], False
    for method in corrections.METHODS.values():
        wanted = variant if variant in method.reads else "as run"
        for beta in method.betas if method.tabled else ():
            line = {"study": study, "method": method.name, "beta": beta, "variant": wanted}
            row = found.get((method.name, beta, wanted), dict.fromkeys(NUMBERS, "") | {"basis": ABSENT})
            line |= {"name": method.printed(beta)} | {name: row[name] for name in (*NUMBERS, "basis")}
            lines.append(line)
    bases = {line["basis"] for line in lines}
    recomputed = RELEASED in bases and "signals" in bases
    untabled = [method.display for method in corrections.METHODS.values() if not method.tabled]
    notes = [f"The paper announces {' and '.join(untabled)} too and prints no row of it."]
    if recomputed:
        notes.append("* Recomputed from the released signals of the instrumented pass.")
    if ABSENT in bases:
        notes.append("Empty cells: this study holds neither counts nor the signal of that correction.")
    return render.Table(
        label="Table 8",
        caption=f"Inference-time corrections on split {split} under the eight-token rule, {variant}.",
        study=study,
        frame=pd.DataFrame(lines),
        columns=[
            render.Column(
                "Method",
                lambda row: row["name"] + ("*" if recomputed and row["basis"] == "signals" else ""),
                numeric=False,
            ),
            render.value("f1", "F1", 4),
            render.value("precision", "Precision", 4),
            render.value("recall", "Recall", 4),
        ],
        notes=[*notes, *([note] if note else [])],
    )
