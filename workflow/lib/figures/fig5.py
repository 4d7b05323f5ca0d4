"""Figure 5 of the first paper: how often each of the eight surface forms is the first token."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from workflow.lib import forms
from workflow.lib.errors import BadInput
from workflow.lib.figures import style

COLUMNS = ("study", "model", "split", "token_id", "form", "count", "n")
# where a count of zero is drawn on the logarithmic scale, and where the scale proper begins
_ZERO, _BREAK = 0.3, 0.6


def data(first_tokens: pd.DataFrame, model: str) -> pd.DataFrame:
    """Return the counts of the eight forms on every split, zeros included.

    Parameters
    ----------
    first_tokens : pandas.DataFrame
        ``statistics/first_tokens.csv``.
    model : str
        What the figure is about; the ids are those of the LLaMA vocabulary.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`, by split and then in the order of Table 5.
    """
    rows = style.only(first_tokens, "statistics/first_tokens.csv", model=model)
    counts = {
        (row.split, row.token_id): row for row in rows[["split", "token_id", "count", "n"]].itertuples(False, "Cell")
    }
    lines = []
    for split in dict.fromkeys(rows["split"]):
        for token, form in forms.SURFACES.items():
            if (split, token) not in counts:
                raise BadInput(
                    f"statistics/first_tokens.csv has no row of token {token} for model {model}, split {split}: "
                    "declare the id among the model's candidates."
                )
            cell = counts[split, token]
            names = rows["study"].iloc[0], model, split
            # namedtuple's own method hides a field called count
            lines.append((*names, token, form, cell[2], cell.n))
    return pd.DataFrame(lines, columns=list(COLUMNS))


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw one line a form with a mark a split; hollow marks left of the break are counts of zero."""
    splits = list(dict.fromkeys(frame["split"]))
    figure = style.canvas(3.4, style.study_of(frame))
    axes = style.panel(figure, 0.95, 0.58, 1.9, 2.6)
    highest = max(int(frame["n"].max()), 10)
    offsets = np.linspace(-0.27, 0.27, len(splits)) if len(splits) > 1 else [0.0]
    for offset, split in zip(offsets, splits, strict=True):
        rows = frame[frame["split"] == split].reset_index(drop=True)
        look = style.SPLITS[split]
        heights = rows.index + offset
        places = rows["count"].where(rows["count"] > 0, _ZERO)
        axes.hlines(heights, _BREAK, places.where(rows["count"] > 0, _BREAK), color=look["color"], linewidth=0.8)
        for zero in (False, True):
            chosen = (rows["count"] == 0) == zero
            axes.plot(
                places[chosen],
                heights[chosen],
                linestyle="",
                marker=look["marker"],
                markersize=3.4,
                markeredgewidth=0.8,
                color=look["color"],
                markerfacecolor="white" if zero else look["color"],
                clip_on=False,
                label="_" if zero else split,
            )
        for height, count in zip(heights, rows["count"], strict=True):
            if count:
                axes.annotate(
                    f"{count:,}",
                    (count, height),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center_baseline",
                    fontsize=5.5,
                    annotation_clip=False,
                )
    axes.axvline(_BREAK, color=style.GREY, linewidth=0.6, linestyle=(0, (2, 2)))
    decades = 10 ** np.arange(0, np.floor(np.log10(highest)) + 1)
    axes.set(xscale="log", xlim=(0.18, 1.25 * highest), ylim=(len(forms.SURFACES) - 0.5, -0.5))
    axes.set_xticks([_ZERO, *decades], ["0", *(f"{decade:,.0f}" for decade in decades)])
    axes.minorticks_off()
    axes.set_yticks(
        range(len(forms.SURFACES)), [f"{forms.quoted(form)}  {token}" for token, form in forms.SURFACES.items()]
    )
    axes.tick_params(axis="y", length=0)
    axes.axhline(3.5, color=style.GREY, linewidth=0.5)
    axes.set_xlabel("questions (log scale; hollow: zero)")
    figure.legend(*axes.get_legend_handles_labels(), loc="upper center", ncols=3, handletextpad=0.2, borderaxespad=0.3)
    return figure
