"""Figure 7 of the first paper: the corrections sorted by F1, and where they lie in precision and recall."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workflow.lib import corrections
from workflow.lib.errors import BadInput
from workflow.lib.figures import style

BASELINE = "baseline"
RELEASED = "released summary"
COLUMNS = ("study", "model", "split", "rank", "method", "beta", "variant", "name", "f1", "precision", "recall", "basis")


def data(rows: pd.DataFrame, model: str, split: str, variant: str) -> pd.DataFrame:
    """Return the baseline and the corrections at the strengths of Table 8, best F1 first.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``statistics/corrections.csv``. Where it has a correction both ways, the released summary stands.
    model, split : str
        What the figure is about.
    variant : "as run" or "paper"
        Definition of the corrections; one whose text and code agree has the variant "as run" only.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`; ``rank`` counts from 1, equal F1 in the order of the methods. Corrections that the
        study does not know are left out.
    """
    rows = style.only(rows, "statistics/corrections.csv", model=model, split=split)
    found: dict[tuple, dict] = {}
    for row in rows.to_dict("records"):
        key = row["method"], float(row["beta"]), row["variant"]
        if key not in found or row["basis"] == RELEASED:
            found[key] = row
    lines = []
    for method in corrections.METHODS.values():
        wanted = variant if variant in method.reads else "as run"
        for beta in method.betas:
            if (method.name, beta, wanted) in found:
                lines.append(found[method.name, beta, wanted] | {"beta": beta, "name": method.printed(beta)})
    if not any(line["method"] == BASELINE for line in lines):
        raise BadInput("statistics/corrections.csv has no row of the baseline: rebuild it.")
    lines.sort(key=lambda line: -line["f1"])
    return pd.DataFrame(lines).assign(rank=range(1, len(lines) + 1))[list(COLUMNS)]


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw the sorted list above the plane; the numbers of the list name the points of the plane."""
    line, plane = 0.155, 2.1
    listed = line * len(frame)
    height = listed + plane + 1.28
    figure = style.canvas(height, style.study_of(frame))
    _sorted(style.panel(figure, 1.55, height - 0.28 - listed, 1.3, listed), frame)
    _plane(style.panel(figure, 0.54, 0.52, 2.26, plane), frame)
    return figure


def _look(method: str) -> dict:
    return {"color": style.NAVY, "marker": "D"} if method == BASELINE else {"color": style.RUST, "marker": "o"}


def _sorted(axes: Axes, frame: pd.DataFrame) -> None:
    span = max(float(frame["f1"].max() - frame["f1"].min()), 0.01)
    low, high = max(frame["f1"].min() - 0.15 * span, 0.0), frame["f1"].max() + 0.15 * span
    for method, rows in frame.groupby("method", sort=False):
        axes.hlines(rows["rank"], low, rows["f1"], color=style.GREY, linewidth=0.5)
        axes.plot(rows["f1"], rows["rank"], linestyle="", markersize=3.6, clip_on=False, **_look(method))
    axes.set_yticks(
        frame["rank"], [f"{row.name}  {row.rank}" for row in frame[["name", "rank"]].itertuples(False, "Row")]
    )
    for row in frame.to_dict("records"):
        axes.annotate(
            f"{row['f1']:.4f}",
            (1.02, row["rank"]),
            xycoords=axes.get_yaxis_transform(),
            va="center_baseline",
            fontsize=style.SMALL,
            annotation_clip=False,
        )
    axes.set(xlim=(low, high), ylim=(len(frame) + 0.6, 0.4))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(axis="y", length=0)
    axes.set_title("F1, best first")


def _plane(axes: Axes, frame: pd.DataFrame) -> None:
    limits = []
    for name in ("recall", "precision"):
        span = max(float(frame[name].max() - frame[name].min()), 0.04)
        limits.append((max(frame[name].min() - 0.25 * span, 0.0), min(frame[name].max() + 0.25 * span, 1.005)))
    (left, right), (bottom, top) = limits
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel="recall", ylabel="precision")
    places = style.spread(((frame["precision"] - bottom) / (top - bottom)).to_list(), 0.062, 0.03, 0.97)
    points = []
    for place, row in zip(places, frame.to_dict("records"), strict=True):
        axes.plot(
            row["recall"], row["precision"], linestyle="", markersize=4, zorder=3, clip_on=False, **_look(row["method"])
        )
        axes.annotate(
            str(row["rank"]),
            (row["recall"], row["precision"]),
            xytext=(1.05, place),
            textcoords="axes fraction",
            va="center",
            fontsize=style.SMALL,
            arrowprops=style.LEADER,
        )
        # the point and its line to the number, in parts of the axes
        start = np.array([(row["recall"] - left) / (right - left), (row["precision"] - bottom) / (top - bottom)])
        points += [start + share * (np.array([1.0, place]) - start) for share in np.linspace(0, 1, 12)]
    _iso_lines(axes, frame, np.array(points))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _iso_lines(axes: Axes, frame: pd.DataFrame, points: np.ndarray) -> None:
    """Draw lines of equal F1: solid through the baseline, broken and labelled at round values."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    corners = [2 * x * y / (x + y) for x in (left, right) for y in (bottom, top) if x + y]
    low, high = min(corners), max(corners)
    step = next(size for size in (0.005, 0.01, 0.02, 0.05, 0.1, 0.25) if (high - low) / size <= 5)
    rounded = [step * count for count in range(1, round(1 / step)) if low < step * count < high]
    solid = frame.loc[(frame["method"] == BASELINE) & (frame["f1"] > 0), "f1"].to_list()
    labels: list[np.ndarray] = []
    for level in [*solid, *rounded]:
        # precision = F1 recall / (2 recall - F1), defined where recall is above half of F1
        recall = np.linspace(max(left, level / 2 + 1e-6), max(right, level / 2 + 2e-6), 2000)
        precision = level * recall / (2 * recall - level)
        inside = (recall <= right) & (precision >= bottom) & (precision <= top)
        look = {"color": style.NAVY} if level in solid else {"color": style.GREY, "linestyle": (0, (3, 2))}
        axes.plot(recall[inside], precision[inside], linewidth=0.7, zorder=1, **look)
        if level in solid:
            continue
        line = np.column_stack(
            [(recall[inside] - left) / (right - left), (precision[inside] - bottom) / (top - bottom)]
        )
        place = _free_place(line, np.concatenate([points, *labels]))
        if place is not None:
            labels.append(place[None])
            box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
            axes.text(
                *place,
                f"{level:.{2 if step >= 0.01 else 3}f}",
                transform=axes.transAxes,
                ha="center",
                va="center",
                color=style.GREY,
                fontsize=style.SMALL,
                bbox=box,
                zorder=2,
            )


def _free_place(line: np.ndarray, taken: np.ndarray) -> np.ndarray | None:
    """Return the place on a line, in parts of the axes, that is farthest from what is taken.

    None where no part of the line is well inside the axes and clear of everything else.
    """
    well_inside = ((line > 0.06) & (line < 0.94)).all(axis=1)
    line = line[well_inside]
    if not len(line):
        return None
    distance = np.linalg.norm(line[:, None] - taken[None], axis=2).min(axis=1)
    best = int(distance.argmax())
    return line[best] if distance[best] > 0.07 else None
