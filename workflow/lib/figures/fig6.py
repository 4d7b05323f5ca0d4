"""Figure 6 of the first paper: eight questions with their images, two of each outcome."""

import textwrap
from pathlib import Path

import matplotlib.image
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from workflow.lib.errors import BadInput
from workflow.lib.figures import outcomes, style

PER_OUTCOME = 2
MEANING = {
    "TP": "label yes, answer yes",
    "TN": "label no, answer no",
    "FP": "label no, answer yes",
    "FN": "label yes, answer no",
}
COLUMNS = (
    *("study", "model", "split", "outcome", "id", "image", "question", "label"),
    *("eight_token", "two_token", "emitted_id", "emitted_text"),
)


def data(answers: pd.DataFrame, questions: pd.DataFrame, study: str, model: str) -> pd.DataFrame:
    """Choose the two questions with the lowest ids of each outcome under the eight-token rule.

    Parameters
    ----------
    answers : pandas.DataFrame
        Answers of one model on one split (`workflow.lib.answers`).
    questions : pandas.DataFrame
        Items of that split.
    study, model : str
        Written into every row.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`, outcomes in the order TP, TN, FP, FN; fewer rows where an outcome occurs less often.
    """
    key = ["dataset", "split", "id"]
    rules = {}
    for name, readout in (("eight_token", "legacy_8tok"), ("two_token", "legacy_2tok")):
        rules[name] = answers.loc[answers["readout"] == readout, [*key, "answer"]].rename(columns={"answer": name})
    rows = (
        answers.drop_duplicates(key)[[*key, "emitted_id", "emitted_text"]]
        .merge(questions, on=key, validate="one_to_one")
        .merge(rules["eight_token"], on=key, validate="one_to_one")
        .merge(rules["two_token"], on=key, validate="one_to_one")
        .sort_values("id", kind="stable")
    )
    if rows.empty:
        raise BadInput(f"no answer of {model} belongs to one of the items: read the answers again.")
    rows = rows.assign(study=study, model=model, outcome=outcomes.of(rows["label"], rows["eight_token"]))
    chosen = [rows[rows["outcome"] == outcome].head(PER_OUTCOME) for outcome in style.OUTCOMES]
    return pd.concat(chosen, ignore_index=True)[list(COLUMNS)]


@style.styled
def draw(frame: pd.DataFrame, images: Path | None) -> Figure:
    """Draw one row an outcome.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `data`.
    images : Path or None
        Folder of the images; None where the study has none, then each place says so.
    """
    height, cell = 6.12, 1.46
    figure = style.canvas(height, style.study_of(frame))
    whole = style.board(figure)
    for place, (outcome, meaning) in enumerate(MEANING.items()):
        top = height - 0.08 - place * cell
        whole.text(
            0.13, top - 0.5, f"{outcome}\n{meaning}", rotation=90, ha="center", va="center", fontsize=style.SMALL
        )
        rows = frame[frame["outcome"] == outcome].to_dict("records")
        for number in range(PER_OUTCOME):
            left = 0.32 + 1.5 * number
            if number >= len(rows):
                _words(whole, left, top, "no further question\nof this outcome")
                continue
            row = rows[number]
            if images is None:
                _words(whole, left, top, f"no image in this study:\n{textwrap.fill(row['image'], 30)}")
            else:
                _picture(style.panel(figure, left, top - 1.0, 1.4, 1.0), images / row["image"])
            lines = textwrap.wrap(row["question"], 30, max_lines=2)
            lines.append(f"id {row['id']}, two-token rule: {row['two_token']}")
            whole.text(
                left + 0.7, top - 1.05, "\n".join(lines), ha="center", va="top", fontsize=style.SMALL, linespacing=1.1
            )
    return figure


def _picture(axes: Axes, path: Path) -> None:
    if not path.is_file():
        raise BadInput(f"image {path} is missing: fetch or build the images again.")
    pixels = matplotlib.image.imread(path)
    axes.imshow(pixels, interpolation="nearest" if max(pixels.shape[:2]) < 200 else "antialiased")
    axes.set_axis_off()


def _words(axes: Axes, left: float, top: float, text: str) -> None:
    axes.add_patch(
        Rectangle((left, top - 1.0), 1.4, 1.0, facecolor=style.PALE, edgecolor=style.GREY, linestyle=(0, (3, 2)))
    )
    axes.text(left + 0.7, top - 0.5, text, ha="center", va="center", fontsize=5.5, color=style.INK)
