"""What published methods report for LLaVA-1.5-7B on POPE, as the first paper surveyed it.

All values are F1 x 100 as printed there. Gains, ranges and spreads are computed from baselines and results, in
decimal arithmetic, so that they are exact. No readout is inferred from a value: what a paper does not state stays
"not stated".
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pandas as pd

from workflow.lib.errors import BadInput

SURVEY = Path(__file__).resolve().parents[1] / "published" / "survey.csv"
COLUMNS = ("paper", "citation", "identifier", "split", "baseline", "result", "reported_gain", "readout", "source")
SPLIT = "adversarial"
"""Split on which ranges and spreads are taken: the one that every surveyed paper reports."""
NAMED = ("Tang et al.", "Seo et al.", "Chen et al.")
"""Papers whose baselines the text sets side by side (Section 4)."""
STATISTICS = ("study", "quantity", "split", "value", "of")
_POINTS = re.compile(r"[+-]?\d+\.\d\d")


def load(path: str | Path = SURVEY) -> pd.DataFrame:
    """Read the survey and compute each gain.

    Returns
    -------
    pandas.DataFrame
        `COLUMNS` with baseline, result and reported_gain as numbers, and ``gain``, result minus baseline; rows in
        file order.

    Raises
    ------
    BadInput
        Wrong columns, a number that is not printed with two decimals, or a paper twice on one split.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise BadInput(f"{path} cannot be read as a CSV table ({error}): restore it.") from None
    if tuple(frame.columns) != COLUMNS:
        raise BadInput(f"{path} has columns {', '.join(frame)}; the header must be {','.join(COLUMNS)}.")
    for column in ("baseline", "result", "reported_gain"):
        for line, text in enumerate(frame[column], 2):
            if not _POINTS.fullmatch(text):
                raise BadInput(f"{path} line {line}: {column} {text!r} is not printed with two decimals: correct it.")
    repeated = frame.duplicated(["paper", "split"])
    if repeated.any():
        row = frame.loc[repeated].iloc[0]
        raise BadInput(f"{path} has {row['paper']} twice on split {row['split']}: keep one row.")
    gains = [Decimal(result) - Decimal(base) for base, result in zip(frame["baseline"], frame["result"], strict=True)]
    numbers = {column: frame[column].astype(float) for column in ("baseline", "result", "reported_gain")}
    return frame.assign(**numbers, gain=[float(gain) for gain in gains])


def statistics(survey: pd.DataFrame, gap: float, study: str) -> pd.DataFrame:
    """Return ranges, spreads and counts of the survey beside the readout gap of this study.

    Parameters
    ----------
    survey : pandas.DataFrame
        Of `load`.
    gap : float
        How far the readout alone moves F1 on `SPLIT`, from 0 to 1 (``statistics/protocol_gap.csv``).
    study : str
        Study that the gap comes from; the surveyed values are the same in every study.

    Returns
    -------
    pandas.DataFrame
        Columns `STATISTICS`; ``of`` is the number of papers that a value is taken over. Values are in points of
        F1 x 100, counts are counts.
    """
    rows = survey[survey["split"] == SPLIT]
    if rows.empty:
        raise BadInput(f"the survey has no row of split {SPLIT}: restore workflow/published/survey.csv.")
    named = rows[rows["paper"].isin(NAMED)]
    # in decimals, because 100 * 0.007 is a little more than 0.7 in doubles
    points = 100 * Decimal(repr(float(gap)))
    below = sum(Decimal(repr(gain)) < points for gain in rows["gain"])
    values = [
        ("gain_min", rows["gain"].min(), rows),
        ("gain_max", rows["gain"].max(), rows),
        ("baseline_min", rows["baseline"].min(), rows),
        ("baseline_max", rows["baseline"].max(), rows),
        ("baseline_spread", _spread(rows["baseline"]), rows),
        ("baseline_spread_named", _spread(named["baseline"]), named),
        ("readout_gap", points, rows),
        ("papers_below_readout_gap", below, rows),
        ("papers_stating_readout", (rows["readout"] != "not stated").sum(), rows),
    ]
    return pd.DataFrame(
        [(study, name, SPLIT, float(value), of["paper"].nunique()) for name, value, of in values],
        columns=list(STATISTICS),
    )


def readout_gap(protocol_gap: pd.DataFrame, model: str) -> float:
    """Return the F1 gap between both rules on `SPLIT`; BadInput where it was not measured."""
    rows = protocol_gap[(protocol_gap["model"] == model) & (protocol_gap["split"] == SPLIT)]
    if len(rows) != 1:
        raise BadInput(
            f"statistics/protocol_gap.csv has {len(rows)} rows of model {model}, split {SPLIT} where 1 is expected: "
            "add them to run.models and run.splits."
        )
    return float(rows["gap"].iloc[0])


def disagreeing(survey: pd.DataFrame) -> Sequence[str]:
    """Return the papers whose reported gain is not the difference of the values that they report."""
    return survey.loc[survey["gain"] != survey["reported_gain"], "paper"].to_list()


def _spread(values: pd.Series) -> float:
    decimals = [Decimal(repr(float(value))) for value in values]
    return float(max(decimals) - min(decimals)) if decimals else 0.0
