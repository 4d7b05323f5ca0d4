"""One look for all figures: sizes, type, colours that also differ in grey, and files that are always the same.

Figures are laid out in inches at the width of one text column, so that their type is read at its real size.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from workflow.lib import files
from workflow.lib.errors import BadInput

COLUMN = 3.3
"""Width of one text column, in inches."""
DOUBLE = 6.9
"""Width of two text columns, in inches."""
DPI = 300
SMALL, TEXT, LARGE = 6.0, 7.0, 7.5
"""Sizes of type in points: notes, text, headings."""

# the lightness of neighbours differs by 15 of 100 or more, also for eyes that mix up red and green
NAVY, RUST, BLUE, AMBER = "#12345e", "#a8471e", "#5a9bd0", "#f4c566"
INK, GREY, PALE = "#1a1a1a", "#6e6e6e", "#e9edf2"
HATCHES = {NAVY: "", RUST: "////", BLUE: "....", AMBER: "xxxx"}
PROTOCOLS = {
    "two_token": {"color": RUST, "linestyle": (0, (4, 1.5)), "zorder": 3, "label": "two-token"},
    "eight_token": {"color": NAVY, "linestyle": "-", "label": "eight-token"},
}
TRUTH = {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 0.9, "label": "label yes"}
OUTCOMES = {"TP": NAVY, "TN": BLUE, "FP": RUST, "FN": AMBER}
SPLITS = {
    "adversarial": {"color": NAVY, "marker": "o"},
    "popular": {"color": RUST, "marker": "s"},
    "random": {"color": BLUE, "marker": "^"},
}

LEADER = {
    "arrowstyle": "-",
    "color": GREY,
    "linewidth": 0.4,
    "relpos": (0, 0.5),
    "shrinkA": 0,
    "shrinkB": 0,
}
"""Thin line from a point to the left end of its label."""

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": TEXT,
    "axes.titlesize": LARGE,
    "axes.labelsize": TEXT,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 4.0,
    "text.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.visible": False,
    "lines.linewidth": 1.1,
    "patch.linewidth": 0.6,
    "hatch.linewidth": 0.4,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # TrueType outlines stay text in the PDF; type 3 fonts are refused by many publishers
    "pdf.fonttype": 42,
    "pdf.compression": 6,
}


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Run a drawing function under this style alone, whatever the reader's own matplotlib settings say."""

    @functools.wraps(draw)
    def wrapper(*arguments: object, **named: object) -> Figure:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_RC)
            return draw(*arguments, **named)

    return wrapper


def canvas(height: float, study: str, width: float = COLUMN) -> Figure:
    """Return an empty figure of a size in inches; the study stands in its lower right corner."""
    figure = Figure(figsize=(width, height))
    figure.text(
        1 - 0.04 / width,
        0.04 / height,
        f"study: {study}",
        fontsize=SMALL,
        color=GREY,
        ha="right",
        va="bottom",
    )
    return figure


def panel(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Return axes at a place given in inches from the lower left corner."""
    whole_width, whole_height = figure.get_size_inches()
    return figure.add_axes((left / whole_width, bottom / whole_height, width / whole_width, height / whole_height))


def board(figure: Figure) -> Axes:
    """Return axes over the whole figure whose data coordinates are inches, for drawings without a scale."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    return axes


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> np.ndarray:
    """Move labels apart along one direction, as little as it takes.

    Parameters
    ----------
    wanted : sequence of float
        Where each label belongs.
    gap : float
        Smallest distance of two labels; made smaller where they would not fit between ``low`` and ``high``.
    low, high : float
        Limits of the places.

    Returns
    -------
    ndarray of float
        Places in the order of ``wanted``; equal wishes keep their order.
    """
    wanted = np.asarray(wanted, dtype=float)
    count = len(wanted)
    if count == 0:
        return wanted
    if count > 1:
        gap = min(gap, (high - low) / (count - 1))
    order = np.argsort(wanted, kind="stable")
    steps = np.arange(count) * gap
    # labels at wish minus step must not decrease: the nearest such places are an isotonic regression
    blocks: list[list[float]] = []
    for wish in wanted[order] - steps:
        blocks.append([wish, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, size), (above, more) = blocks[-2], blocks[-1]
            blocks[-2:] = [[(mean * size + above * more) / (size + more), size + more]]
    even = np.concatenate([np.full(int(size), mean) for mean, size in blocks])
    places = np.empty(count)
    places[order] = even.clip(low, high - steps[-1]) + steps
    return places


def ink_on(background: object) -> str:
    """Return white or black type, whichever contrasts more with a background colour."""
    linear = np.asarray(to_rgb(background)) ** 2.2
    return "white" if linear @ (0.2126, 0.7152, 0.0722) < 0.18 else INK


def limits(values: pd.Series) -> tuple[float, float]:
    """Return the ends of an axis around values; a constant gets room on both sides."""
    low, high = float(values.min()), float(values.max())
    margin = 0.02 * (high - low) or 0.05 * abs(low) or 0.5
    return low - margin, high + margin


def density(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the share of the values in each bin; all 0 where there is no value."""
    counts, _ = np.histogram(values, edges)
    return counts / max(len(values), 1)


def mean_text(values: np.ndarray, decimals: int = 4) -> str:
    """Return the printed mean, or that there is none."""
    return f"{np.mean(values):.{decimals}f}" if len(values) else "none"


def only(frame: pd.DataFrame, source: str, **wanted: object) -> pd.DataFrame:
    """Return the rows of a frame with given values; BadInput where there are none or the study is mixed."""
    for name, value in wanted.items():
        kept = frame[frame[name] == value]
        if kept.empty:
            known = ", ".join(map(str, dict.fromkeys(frame[name]))) or "none"
            raise BadInput(f"{source} has no rows of {name} {value!r} (it has {known}): rebuild it.")
        frame = kept
    if frame["study"].nunique() != 1:
        raise BadInput(f"{source} mixes studies ({', '.join(sorted(set(frame['study'])))}): rebuild it.")
    return frame


def study_of(frame: pd.DataFrame) -> str:
    """Return the study of plotted data, where all rows have the same."""
    studies = list(dict.fromkeys(frame["study"]))
    if len(studies) != 1:
        raise BadInput(f"a figure is drawn from {len(studies)} studies where 1 is expected: rebuild its data.")
    return studies[0]


def save(figure: Figure, pdf: str | Path, png: str | Path) -> None:
    """Write both forms; the same data give the same bytes, because no time and no version is written."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        with files.write_atomically(pdf) as temporary:
            figure.savefig(
                temporary,
                format="pdf",
                metadata={"Creator": "Readout Audit", "Producer": None, "CreationDate": None},
            )
        with files.write_atomically(png) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
