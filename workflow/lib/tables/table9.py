"""Table 9 of the first paper: signals by outcome group."""

import pandas as pd

from workflow.lib.errors import BadInput
from workflow.lib.tables import render

ROWS = (
    ("attention", "correct"),
    ("attention", "wrong"),
    ("logit_gap", "TP"),
    ("logit_gap", "TN"),
    ("logit_gap", "FP"),
    ("logit_gap", "FN"),
)
DISPLAY = {"attention": "Attention", "logit_gap": "Logit gap"}
DECIMALS = {"attention": 4, "logit_gap": 3}
ABSENT = "not measured"


def build(tests: pd.DataFrame, model: str, split: str, note: str = "") -> render.Table:
    """Print size, mean and standard deviation (n - 1) of each signal in the groups that the paper lists.

    Parameters
    ----------
    tests : pandas.DataFrame
        ``statistics/signal_tests.csv``.
    model, split : str
        What the table is about.
    note : str
        Sentence under the table; empty for none.

    Notes
    -----
    A mean of no values and a deviation of fewer than two are empty cells; ``degenerate`` says why.
    """
    rows = render.model_rows(tests, model, "statistics/signal_tests.csv")
    rows = rows[rows["split"] == split]
    study = render.study_of(rows)
    found = {}
    for row in rows.to_dict("records"):
        for side in "ab":
            found.setdefault((row["signal"], row[f"group_{side}"]), (row, side))
    lines = []
    for signal, group in ROWS:
        if (signal, group) not in found:
            raise BadInput(
                f"statistics/signal_tests.csv compares no group {group} of signal {signal}: add a comparison of it to "
                "statistics.comparisons of the configuration."
            )
        row, side = found[signal, group]
        n = int(row[f"n_{side}"])
        few = "empty" if not n else "one value" if n == 1 else ""
        lines.append(
            {
                "study": study,
                "signal": signal,
                "group": group,
                "n": n,
                "mean": _cell(row[f"mean_{side}"]),
                "sd": _cell(row[f"sd_{side}"]),
                "degenerate": ABSENT if row["degenerate"] == ABSENT else few,
            }
        )
    return render.Table(
        label="Table 9",
        caption="Signals by outcome group of the eight-token answer.",
        study=study,
        frame=pd.DataFrame(lines),
        columns=[
            render.text("signal", "Signal", DISPLAY.__getitem__),
            render.text("group", "Group"),
            render.value("n", "n", 0),
            render.Column("Mean", lambda row: render.number(row["mean"], DECIMALS[row["signal"]])),
            render.Column("SD", lambda row: render.number(row["sd"], DECIMALS[row["signal"]])),
        ],
        notes=[note] if note else [],
    )


def _cell(value: float | str) -> float | str:
    # a column of a CSV file that has one empty cell is read as text throughout
    return "" if value == "" else float(value)
