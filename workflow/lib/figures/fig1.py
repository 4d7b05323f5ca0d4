"""Figure 1 of the first paper: the path from the logits of one answer position to two unlike answers."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from workflow.lib.figures import style
from workflow.lib.metrics import Confusion
from workflow.lib.tokens import LEGACY_8TOK

COLUMNS = ("study", "model", "split", "stage", "name", "value")


def data(transitions: pd.DataFrame, first_tokens: pd.DataFrame, model: str, split: str) -> pd.DataFrame:
    """Collect every count along the path.

    Parameters
    ----------
    transitions : pandas.DataFrame
        ``statistics/transitions.csv``.
    first_tokens : pandas.DataFrame
        ``statistics/first_tokens.csv``.
    model, split : str
        What the figure is about.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`. Stages: questions; emitted (first token among the eight yes or no ids, or another);
        eight_token (its answers); two_token (the pairs "no to yes" and so on); flipped (the pairs no to yes by
        the cell in which they end); cells and f1 of either rule.
    """
    rows = style.only(transitions, "statistics/transitions.csv", model=model, split=split)
    by_label = {row["label"]: row for row in rows.to_dict("records")}
    yes, no = by_label["yes"], by_label["no"]
    pairs = {name: yes[name] + no[name] for name in ("yes_yes", "yes_no", "no_yes", "no_no")}
    tokens = style.only(first_tokens, "statistics/first_tokens.csv", model=model, split=split)
    emitted = {
        "yes form": tokens.loc[tokens["token_id"].isin(LEGACY_8TOK.yes), "count"].sum(),
        "no form": tokens.loc[tokens["token_id"].isin(LEGACY_8TOK.no), "count"].sum(),
    }
    emitted["another token"] = tokens["count"].sum() - sum(emitted.values())
    cells = {
        "eight_token": Confusion(
            tp=yes["yes_yes"] + yes["yes_no"],
            fp=no["yes_yes"] + no["yes_no"],
            fn=yes["no_yes"] + yes["no_no"],
            tn=no["no_yes"] + no["no_no"],
        ),
        "two_token": Confusion(
            tp=yes["yes_yes"] + yes["no_yes"],
            fp=no["yes_yes"] + no["no_yes"],
            fn=yes["yes_no"] + yes["no_no"],
            tn=no["yes_no"] + no["no_no"],
        ),
    }
    lines = [("questions", "all", tokens["count"].sum())]
    lines += [("emitted", name, count) for name, count in emitted.items()]
    lines += [("eight_token", "yes", pairs["yes_yes"] + pairs["yes_no"])]
    lines += [("eight_token", "no", pairs["no_yes"] + pairs["no_no"])]
    lines += [("two_token", name.replace("_", " to "), count) for name, count in pairs.items()]
    lines += [("flipped", "fp", no["no_yes"]), ("flipped", "tp", yes["no_yes"])]
    for rule, counted in cells.items():
        lines += [(f"cells {rule}", name, getattr(counted, name)) for name in ("tp", "fp", "fn", "tn")]
        lines += [("f1", rule, counted.f1)]
    fixed = {"study": rows["study"].iloc[0], "model": model, "split": split}
    return pd.DataFrame(
        [fixed | {"stage": stage, "name": name, "value": float(value)} for stage, name, value in lines],
        columns=list(COLUMNS),
    )


@style.styled
def draw(frame: pd.DataFrame) -> Figure:
    """Draw the path from top to bottom: the questions, then a band for either rule with its result."""
    value = frame.set_index(["stage", "name"])["value"].to_dict()
    figure = style.canvas(3.95, style.study_of(frame))
    axes = style.board(figure)

    def count(stage: str, name: str) -> str:
        return f"{value[stage, name]:,.0f}"

    other = f" · another {count('emitted', 'another token')}" if value["emitted", "another token"] else ""
    first = f"first token: yes form {count('emitted', 'yes form')} · no form {count('emitted', 'no form')}{other}"
    _box(axes, (0.08, 3.45, 3.14, 0.42), f"{count('questions', 'all')} questions, {frame['split'].iloc[0]}", first)

    _band(axes, 2.22, 1.05, "Eight-token rule: largest of 4 yes > largest of 4 no", "eight_token", value, style.NAVY)
    _box(axes, (0.2, 2.55, 1.2, 0.4), f"yes {count('eight_token', 'yes')}")
    _box(axes, (1.54, 2.55, 1.56, 0.4), f"no {count('eight_token', 'no')}")

    _band(axes, 0.22, 1.82, "Two-token rule: logit 3582 > logit 1217", "two_token", value, style.RUST)
    lost = f"turned to no: {count('two_token', 'yes to no')}"
    _box(axes, (0.2, 1.3, 1.2, 0.4), f"yes {count('two_token', 'yes to yes')}", lost)
    _box(axes, (1.54, 1.3, 0.88, 0.4), f"yes {count('two_token', 'no to yes')}", "turned to yes", style.AMBER)
    _box(axes, (2.5, 1.3, 0.6, 0.4), f"no {count('two_token', 'no to no')}", "kept")
    _box(axes, (1.3, 0.58, 0.84, 0.4), count("flipped", "fp"), "label no: FP")
    _box(axes, (2.26, 0.58, 0.84, 0.4), count("flipped", "tp"), "label yes: TP")
    for start, end in (
        *(((0.8, 3.45), (0.8, 2.95)), ((2.32, 3.45), (2.32, 2.95))),
        *(((0.8, 2.55), (0.8, 1.7)), ((1.98, 2.55), (1.98, 1.7)), ((2.8, 2.55), (2.8, 1.7))),
        *(((1.8, 1.3), (1.72, 0.98)), ((2.2, 1.3), (2.6, 0.98))),
    ):
        _arrow(axes, start, end)
    return figure


def _patch(axes: Axes, place: tuple[float, ...], fill: str, edge: str, width: float) -> None:
    left, bottom, across, up = place
    shape = "round,pad=0,rounding_size=0.04"
    axes.add_patch(FancyBboxPatch((left, bottom), across, up, shape, facecolor=fill, edgecolor=edge, linewidth=width))


def _box(axes: Axes, place: tuple[float, ...], head: str, below: str = "", fill: str = "white") -> None:
    left, bottom, across, up = place
    _patch(axes, place, fill, style.INK, 0.7)
    middle = left + across / 2
    height = bottom + (0.7 if below else 0.5) * up
    axes.text(middle, height, head, ha="center", va="center", fontsize=style.LARGE, weight="bold")
    if below:
        axes.text(middle, bottom + 0.27 * up, below, ha="center", va="center", fontsize=style.SMALL)


def _band(
    axes: Axes,
    bottom: float,
    up: float,
    title: str,
    rule: str,
    value: Mapping[tuple[str, str], float],
    edge: str,
) -> None:
    """Draw the frame of a rule: its definition above, its result below."""
    _patch(axes, (0.08, bottom, 3.14, up), style.PALE, edge, 1.2)
    # on patches of the ground, because arrows pass behind
    ground = {"boxstyle": "square,pad=0.15", "facecolor": style.PALE, "edgecolor": "none"}
    middle = {"ha": "center", "va": "center", "zorder": 4, "bbox": ground}
    axes.text(1.65, bottom + up - 0.16, title, **middle)
    cells = " ".join(f"{name.upper()} {value[f'cells {rule}', name]:,.0f}" for name in ("tp", "fp", "fn", "tn"))
    axes.text(1.65, bottom + 0.15, f"F1 {value['f1', rule]:.4f}:  {cells}", **middle)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "linewidth": 0.7, "color": style.INK, "mutation_scale": 6}
    axes.annotate("", end, start, arrowprops=look | {"shrinkA": 0, "shrinkB": 0})
