"""Figure 4 of the first paper: the running yes-rate of both rules on every split."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workflow.lib.figures import running, style


def data(answers: Iterable[pd.DataFrame], study: str, model: str) -> pd.DataFrame:
    """Return the running yes-rates of several splits below each other; see `running.yes_rates`."""
    return pd.concat([running.yes_rates(frame, study, model) for frame in answers], ignore_index=True)


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw one panel a split, on the same scale."""
    splits = list(dict.fromkeys(frame["split"]))
    panel, gap = 0.85, 0.3
    height = 0.72 + len(splits) * (panel + gap)
    figure = style.canvas(height, style.study_of(frame))
    looks = [style.TRUTH, *style.PROTOCOLS.values()]
    figure.legend(
        handles=[Line2D([], [], **look) for look in looks],
        loc="upper center",
        ncols=3,
        handlelength=2.6,
        bbox_to_anchor=(0.5, 1.0),
        borderaxespad=0.2,
    )
    for place, split in enumerate(splits):
        rows = frame[frame["split"] == split]
        axes = style.panel(figure, 0.45, height - 0.4 - panel - place * (panel + gap), 2.35, panel)
        axes.set_title(split, fontsize=style.TEXT, pad=2)
        last = rows.iloc[-1]
        axes.axhline(last["label_yes"], **style.TRUTH)
        for name, look in style.PROTOCOLS.items():
            axes.plot(rows["question"], rows[name], **look)
        axes.set(xlim=(0, last["question"]), ylim=(0, 1), yticks=[0, 0.5, 1])
        places = style.spread([last[name] for name in style.PROTOCOLS], 0.17, 0.06, 0.94)
        for at, (name, look) in zip(places, style.PROTOCOLS.items(), strict=True):
            axes.annotate(
                f"{last[name]:.3f}",
                (last["question"], last[name]),
                xytext=(1.04, at),
                textcoords=axes.transAxes,
                va="center",
                color=look["color"],
                fontsize=style.SMALL,
                annotation_clip=False,
            )
        if place == len(splits) // 2:
            axes.set_ylabel("share of yes")
        if place < len(splits) - 1:
            axes.set_xticklabels([])
        else:
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_xlabel("questions so far")
    return figure
