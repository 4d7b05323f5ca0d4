"""Figure 3 of the first paper: the running yes-rate of both rules on one split."""

import pandas as pd
from matplotlib.figure import Figure

from workflow.lib.figures import running, style


def data(answers: pd.DataFrame, study: str, model: str) -> pd.DataFrame:
    """Return the running yes-rates of one split; see `running.yes_rates`."""
    return running.yes_rates(answers, study, model)


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw either rule as a line that is labelled where it ends, and the share of label yes."""
    figure = style.canvas(2.2, style.study_of(frame))
    axes = style.panel(figure, 0.45, 0.48, 2.05, 1.5)
    axes.set_title(f"Running yes-rate, split {frame['split'].iloc[0]}")
    last = frame.iloc[-1]
    ends = [(last["label_yes"], style.TRUTH)]
    axes.axhline(last["label_yes"], **style.TRUTH)
    for name, look in style.PROTOCOLS.items():
        axes.plot(frame["question"], frame[name], **look)
        ends.append((last[name], look))
    axes.set(xlim=(0, last["question"]), ylim=(0, 1), xlabel="questions so far", ylabel="share of yes")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    places = style.spread([value for value, _ in ends], 0.15, 0.07, 0.93)
    for place, (value, look) in zip(places, ends, strict=True):
        axes.annotate(
            f"{look['label']}\n{value:.3f}",
            (last["question"], value),
            xytext=(1.08, place),
            textcoords=axes.transAxes,
            va="center",
            color=style.INK if look is style.TRUTH else look["color"],
            fontsize=style.SMALL,
            linespacing=0.95,
            annotation_clip=False,
            arrowprops=style.LEADER,
        )
    return figure
