"""The outcome of each question, as figures 6, 8 and 9 group by it."""

import pandas as pd

from workflow.lib import signals
from workflow.lib.errors import BadInput

NAMES = {("yes", "yes"): "TP", ("no", "no"): "TN", ("no", "yes"): "FP", ("yes", "no"): "FN"}
COLUMNS = ("study", "model", "split", "id", "label", "answer", "outcome", "value")


def of(labels: pd.Series, answers: pd.Series) -> pd.Series:
    """Return TP, TN, FP or FN of each row; BadInput where an answer is no verdict."""
    pairs = list(zip(labels, answers, strict=True))
    for row, pair in enumerate(pairs):
        if pair not in NAMES:
            raise BadInput(
                f"row {row} (counted from 0) has label {pair[0]!r} and answer {pair[1]!r} where yes or no is expected "
                "of both: plot a readout that always answers."
            )
    return pd.Series([NAMES[pair] for pair in pairs], index=labels.index, dtype="str")


def values(frame: pd.DataFrame, signal: str, study: str, model: str) -> pd.DataFrame:
    """Return a signal of every question with its outcome: columns `COLUMNS`, by id.

    Parameters
    ----------
    frame : pandas.DataFrame
        Signals (`workflow.lib.signals`).
    signal : str
        Its column, or `signals.LOGIT_GAP`.
    study, model : str
        Written into every row.
    """
    value = signals.values(frame, signal)
    if value is None:
        raise BadInput(f"the signals of {model} have no {signal}: measure it in the instrumented pass.")
    outcome = of(frame["label"], frame["answer"])
    frame = frame[["split", "id", "label", "answer"]].assign(study=study, model=model, outcome=outcome, value=value)
    return frame.sort_values("id", kind="stable", ignore_index=True)[list(COLUMNS)]
