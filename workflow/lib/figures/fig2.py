"""Figure 2 of the first paper: the confusion matrices of both rules."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from workflow.lib.figures import style

RULES = {"legacy_2tok": "Two-token", "legacy_8tok": "Eight-token"}
CELLS = {"tp": ("yes", "yes"), "fn": ("yes", "no"), "fp": ("no", "yes"), "tn": ("no", "no")}
COLUMNS = ("study", "model", "split", "readout", "label", "answer", "cell", "count", "share", "f1")


def data(confusion: pd.DataFrame, model: str, split: str) -> pd.DataFrame:
    """Return the four cells of either rule.

    Parameters
    ----------
    confusion : pandas.DataFrame
        ``statistics/confusion.csv``.
    model, split : str
        What the figure is about.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`; ``share`` is the cell's share of the questions of its label, 0 where there are none.
    """
    lines = []
    for readout in RULES:
        rows = style.only(confusion, "statistics/confusion.csv", model=model, split=split, readout=readout)
        row = rows.iloc[0]
        for cell, (label, answer) in CELLS.items():
            of_label = sum(row[other] for other, (theirs, _) in CELLS.items() if theirs == label)
            share = float(row[cell] / of_label) if of_label else 0.0
            names = row["study"], model, split, readout, label, answer, cell
            lines.append((*names, int(row[cell]), share, float(row["f1"])))
    return pd.DataFrame(lines, columns=list(COLUMNS))


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw both matrices side by side; the darker a cell, the larger its share of its label."""
    figure = style.canvas(1.98, style.study_of(frame))
    for left, (readout, title) in zip((0.55, 1.98), RULES.items(), strict=True):
        rows = frame[frame["readout"] == readout]
        axes = style.panel(figure, left, 0.5, 1.2, 1.2)
        axes.set_title(f"{title}, F1 {rows['f1'].iloc[0]:.4f}", loc="center")
        _matrix(axes, rows)
        axes.set_xlabel("answer", labelpad=2)
        if left < 1:
            axes.set_ylabel("label", labelpad=2)
        else:
            axes.set_yticklabels([])
    return figure


def _matrix(axes: Axes, rows: pd.DataFrame) -> None:
    shades = LinearSegmentedColormap.from_list("shares", ["white", style.NAVY])
    places = {"yes": 0, "no": 1}
    for row in rows.to_dict("records"):
        x, y = places[row["answer"]], 1 - places[row["label"]]
        wrong = row["label"] != row["answer"]
        fill = shades(row["share"])
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=fill, edgecolor=style.INK, linewidth=0.6))
        ink = style.ink_on(fill[:3])
        head = f"{row['cell'].upper()}{' (wrong)' if wrong else ''}"
        axes.text(x + 0.5, y + 0.77, head, ha="center", va="center", color=ink, fontsize=style.SMALL)
        axes.text(
            x + 0.5,
            y + 0.48,
            f"{row['count']:,}",
            ha="center",
            va="center",
            color=ink,
            fontsize=9,
            weight="bold",
        )
        axes.text(x + 0.5, y + 0.2, f"{row['share']:.1%}", ha="center", va="center", color=ink, fontsize=style.SMALL)
    axes.set(xlim=(0, 2), ylim=(0, 2), aspect="equal")
    axes.set_xticks([0.5, 1.5], ["yes", "no"])
    axes.set_yticks([1.5, 0.5], ["yes", "no"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
