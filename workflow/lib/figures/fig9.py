"""Figure 9 of the first paper: the size of the logit gap, by outcome."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from workflow.lib import signals
from workflow.lib.figures import outcomes, style

BINS = 48


def data(frame: pd.DataFrame, study: str, model: str) -> pd.DataFrame:
    """Return |yes_max - no_max| of every question with its outcome; see `outcomes.values`."""
    return outcomes.values(frame, signals.LOGIT_GAP, study, model)


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw one distribution an outcome on a common scale, with its mean."""
    figure = style.canvas(2.45, style.study_of(frame))
    high = max(float(frame["value"].max()) * 1.02, 0.1)
    axes = style.panel(figure, 0.4, 0.52, 2.05, 1.85)
    edges = np.linspace(0, high, BINS + 1)
    shapes = {}
    for outcome in style.OUTCOMES:
        values = frame.loc[frame["outcome"] == outcome, "value"].to_numpy(float)
        shapes[outcome] = values, style.density(values, edges)
    tallest = max((density.max() for _, density in shapes.values()), default=0.0) or 1.0
    for place, (outcome, (values, density)) in enumerate(shapes.items()):
        color, base = style.OUTCOMES[outcome], len(shapes) - 1 - place
        axes.stairs(
            base + 0.82 * density / tallest,
            edges,
            baseline=base,
            fill=True,
            facecolor=color,
            edgecolor=style.INK,
            linewidth=0.4,
            hatch=style.HATCHES[color],
            alpha=0.85,
        )
        axes.axhline(base, color=style.INK, linewidth=0.4)
        if len(values):
            axes.plot(
                values.mean(),
                base + 0.06,
                marker="D",
                markersize=4,
                color="white",
                markeredgecolor=style.INK,
                markeredgewidth=0.8,
            )
        text = f"n = {len(values):,}\nmean {style.mean_text(values, 3)}"
        axes.annotate(
            text,
            (1.03, base + 0.32),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=style.SMALL,
            annotation_clip=False,
        )
    axes.set_yticks([len(shapes) - 1 - place + 0.32 for place in range(len(shapes))], list(shapes))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    top = len(shapes) - 1 + max(0.7, 0.1 + 0.82 * shapes[next(iter(shapes))][1].max() / tallest)
    axes.set(xlim=(0, high), ylim=(0, top), xlabel="|max yes logit − max no logit|")
    return figure
