"""Figure 8 of the first paper: attention to the image, by correctness of the answer."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workflow.lib.figures import outcomes, style

GROUPS = {"correct": (("TP", "TN"), style.NAVY), "wrong": (("FP", "FN"), style.AMBER)}
BINS = 40


def data(frame: pd.DataFrame, study: str, model: str) -> pd.DataFrame:
    """Return the attention of every question with its outcome; see `outcomes.values`."""
    return outcomes.values(frame, "attention", study, model)


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw the distributions of correct and wrong answers, and below them the four outcomes."""
    figure = style.canvas(3.6, style.study_of(frame))
    low, high = style.limits(frame["value"])
    upper = style.panel(figure, 0.4, 2.0, 2.15, 1.22)
    edges = np.linspace(low, high, BINS + 1)
    for name, (members, color) in GROUPS.items():
        values = frame.loc[frame["outcome"].isin(members), "value"].to_numpy(float)
        label = f"{name}: n = {len(values):,}, mean {style.mean_text(values)}"
        density = style.density(values, edges)
        upper.stairs(
            density,
            edges,
            fill=True,
            alpha=0.45,
            facecolor=color,
            hatch="" if name == "correct" else "/////",
            edgecolor=color if name == "correct" else style.INK,
            linewidth=0.4,
            label=label,
        )
        upper.stairs(density, edges, color=color if name == "correct" else style.RUST, linewidth=1.0)
        if len(values):
            line = "-" if name == "correct" else (0, (3, 1.5))
            upper.axvline(
                values.mean(), color=color if name == "correct" else style.RUST, linewidth=1.1, linestyle=line
            )
    upper.set(xlim=(low, high), yticks=[], ylabel="share of group")
    upper.set_xticklabels([])
    figure.legend(*upper.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0.12, 1.0), borderaxespad=0.2)
    _boxes(style.panel(figure, 0.4, 0.52, 2.15, 1.3), frame, low, high)
    return figure


def _boxes(axes: Axes, frame: pd.DataFrame, low: float, high: float) -> None:
    """Draw quartiles as boxes, 5 and 95 percent as whiskers, means as diamonds with their values."""
    for place, (outcome, color) in enumerate(style.OUTCOMES.items()):
        values = frame.loc[frame["outcome"] == outcome, "value"].to_numpy(float)
        if len(values):
            axes.boxplot(
                values,
                positions=[place],
                orientation="horizontal",
                widths=0.55,
                whis=(5, 95),
                showfliers=False,
                showmeans=True,
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": color, "linewidth": 0.6, "alpha": 0.75},
                whiskerprops={"linewidth": 0.6},
                capprops={"linewidth": 0.6},
                medianprops={"color": style.INK, "linewidth": 0.9},
                meanprops={"marker": "D", "markersize": 3.5, "markerfacecolor": "white", "markeredgecolor": style.INK},
            )
        axes.annotate(
            style.mean_text(values),
            (1.03, place),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=style.SMALL,
            annotation_clip=False,
        )
    axes.annotate(
        "mean",
        (1.03, -0.75),
        xycoords=axes.get_yaxis_transform(),
        va="center",
        fontsize=style.SMALL,
        style="italic",
        annotation_clip=False,
    )
    axes.set_yticks(range(len(style.OUTCOMES)), list(style.OUTCOMES))
    axes.set(xlim=(low, high), ylim=(len(style.OUTCOMES) - 0.4, -0.6), xlabel="attention to the image")
