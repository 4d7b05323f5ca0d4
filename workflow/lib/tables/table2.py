"""Table 2 of the first paper: the two-token and the eight-token readout of the same runs."""

from decimal import Decimal

import pandas as pd

from workflow.lib.tables import render

PROTOCOLS = {"legacy_2tok": "Two-token", "legacy_8tok": "Eight-token"}
_COPIED = ["f1", "precision", "recall", "yes_rate"]


def build(confusion: pd.DataFrame, model: str, note: str = "") -> render.Table:
    """Set both protocols side by side; delta is the eight-token F1 minus the two-token F1.

    ``delta`` subtracts the F1 values rounded to four decimals, as the paper and its released summaries do, so
    that a reader can check the column; ``delta_exact`` subtracts them at full precision. The two can differ by
    one unit of the last decimal (split random of the released records: 0.0316 against 0.03151).

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
    study = render.study_of(rows)
    rows = rows[rows["readout"].isin(PROTOCOLS)]
    rows = render.in_split_order(rows.sort_values("readout", key=lambda name: name.map(list(PROTOCOLS).index)))
    f1 = {(row.split, row.readout): row.f1 for row in rows.itertuples(index=False)}
    pairs = [
        (f1[split, "legacy_8tok"], f1[split, "legacy_2tok"]) if readout == "legacy_2tok" else None
        for split, readout in zip(rows["split"], rows["readout"], strict=True)
    ]
    delta = [float(_rounded(pair[0]) - _rounded(pair[1])) if pair else "" for pair in pairs]
    exact = [pair[0] - pair[1] if pair else "" for pair in pairs]

    frame = pd.DataFrame(
        {"study": rows["study"], "split": rows["split"], "protocol": rows["readout"].map(PROTOCOLS)}
        | {name: rows[name] for name in _COPIED}
        | {"delta": pd.Series(delta, index=rows.index, dtype=object)}
        | {"delta_exact": pd.Series(exact, index=rows.index, dtype=object)}
    )
    return render.Table(
        label="Table 2",
        caption="Two-token and eight-token readout of the same runs; Δ is the difference of the printed F1.",
        study=study,
        frame=frame,
        columns=[
            render.Column(
                "Split",
                lambda row: row["split"].capitalize() if row["protocol"] == "Two-token" else "",
                numeric=False,
            ),
            render.text("protocol", "Protocol"),
            render.value("f1", "F1", 4),
            render.value("precision", "Precision", 4),
            render.value("recall", "Recall", 4),
            render.value("yes_rate", "Yes-rate", 3),
            render.Column("Δ", lambda row: "" if row["delta"] == "" else render.number(row["delta"], 4, signed=True)),
        ],
        notes=[note] if note else [],
    )


def _rounded(f1: float) -> Decimal:
    return Decimal(render.number(f1, 4))
