"""Figure 10 of the first paper: the eight LLaMA ids against what a Mistral vocabulary does with the same forms."""

import json

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from workflow.lib import forms
from workflow.lib.figures import style

COLUMNS = (
    *("study", "form", "llama_id", "llama_emitted", "mistral_piece", "mistral_piece_known"),
    *("mistral_ids", "mistral_single", "mistral_in_dynamic_set", "mistral_emitted"),
)


def data(mistral: pd.DataFrame, first_tokens: pd.DataFrame, models: tuple[str, str]) -> pd.DataFrame:
    """Put both vocabularies side by side, one row a surface form.

    Parameters
    ----------
    mistral : pandas.DataFrame
        Forms of the Mistral model (`forms.load`).
    first_tokens : pandas.DataFrame
        ``statistics/first_tokens.csv``.
    models : pair of str
        The LLaMA and the Mistral model.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`: the LLaMA id of the form and how often it was the first token, all splits together; what
        the same id is in the Mistral vocabulary (the decoded piece, where the study knows it); how Mistral encodes
        the form, whether that enters its dynamic set, and how often it was the first token.
    """
    source = f"tokens/{models[1]}.csv"
    tokens = style.only(first_tokens, "statistics/first_tokens.csv")
    emitted = tokens.groupby(["model", "token_id"])["count"].sum().to_dict()
    known = forms.meanings(mistral)
    encoded = forms.by_form(mistral, source).set_index("form")
    lines = []
    for token, form in forms.SURFACES.items():
        piece, *_ = known.get(token, ("", "", 0))
        row = encoded.loc[form]
        count = emitted.get((models[1], row["ids"][0]), 0) if row["single"] else 0
        lines.append(
            (
                *(tokens["study"].iloc[0], form, token, emitted.get((models[0], token), 0)),
                *(forms.surface(piece), bool(piece), json.dumps(list(row["ids"]))),
                *(bool(row["single"]), bool(row["in_dynamic_set"]), count),
            )
        )
    return pd.DataFrame(lines, columns=list(COLUMNS))


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw a map with one row a form: LLaMA id, the same id in Mistral's vocabulary, Mistral's own ids."""
    known = bool(frame["mistral_piece_known"].any())
    line, below = 0.245, 0.5
    height = below + line * len(frame) + (0.38 if known else 0.26)
    figure = style.canvas(height, style.study_of(frame))
    axes = style.board(figure)
    # without the middle column the other two share its place
    own, same, theirs = ((0.5, 0.8), (1.35, 0.7), (2.1, 1.12)) if known else ((0.5, 1.2), None, (1.8, 1.42))
    top = below + line * len(frame)
    headings = {"LLaMA id": own, "same id\nin Mistral": same, "Mistral ids of the form": theirs}
    for heading, column in headings.items():
        if column:
            axes.text(
                column[0] + column[1] / 2,
                top + 0.06,
                heading,
                ha="center",
                va="bottom",
                weight="bold",
                fontsize=style.SMALL,
            )
    axes.text(0.42, top + 0.06, "form", ha="right", va="bottom", weight="bold", fontsize=style.SMALL)
    for place, row in enumerate(frame.to_dict("records")):
        bottom = top - line * (place + 1)
        axes.text(0.42, bottom + line / 2, forms.quoted(row["form"]), ha="right", va="center")
        text = str(row["llama_id"]) + (f" ({row['llama_emitted']:,})" if row["llama_emitted"] else "")
        _cell(axes, own, bottom, line, text, style.NAVY if row["llama_emitted"] else style.PALE)
        if same:
            piece = forms.quoted(_shortened(row["mistral_piece"])) if row["mistral_piece_known"] else "not known"
            _cell(axes, same, bottom, line, piece, "white")
        text = ", ".join(map(str, json.loads(row["mistral_ids"])))
        text += f" ({row['mistral_emitted']:,})" if row["mistral_emitted"] else ""
        fill = style.PALE if row["mistral_in_dynamic_set"] else "white"
        fill = style.NAVY if row["mistral_emitted"] else fill
        _cell(axes, theirs, bottom, line, text, fill, hatch="" if row["mistral_single"] else "....")
    legend = (
        (0.1, style.NAVY, "", "first token (times)"),
        (1.3, style.PALE, "", "one token"),
        (2.1, "white", "....", "several tokens"),
    )
    for left, fill, hatch, text in legend:
        axes.add_patch(
            Rectangle((left, 0.24), 0.16, 0.12, facecolor=fill, edgecolor=style.INK, hatch=hatch, linewidth=0.5)
        )
        axes.text(left + 0.21, 0.3, text, va="center", fontsize=style.SMALL)
    return figure


def _shortened(piece: str) -> str:
    return piece if len(piece) <= 10 else piece[:9] + "…"


def _cell(
    axes: Axes, column: tuple[float, float], bottom: float, height: float, text: str, fill: str, hatch: str = ""
) -> None:
    left, width = column
    axes.add_patch(
        Rectangle(
            (left, bottom + 0.015),
            width,
            height - 0.03,
            facecolor=fill,
            edgecolor=style.GREY,
            hatch=hatch,
            linewidth=0.5,
        )
    )
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": "none"} if hatch else None
    axes.text(
        left + width / 2,
        bottom + height / 2,
        text,
        ha="center",
        va="center",
        fontsize=style.SMALL,
        color=style.ink_on(fill),
        bbox=box,
    )
