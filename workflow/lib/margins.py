"""How near answers stand to a tie: exact ties, near-ties at 16 bits, and the histogram of margins."""

import numpy as np
import pandas as pd

from workflow.lib import readouts
from workflow.lib.errors import BadInput
from workflow.lib.readouts import LogitsView

FORMATS = {"float16": (10, -14), "bfloat16": (7, -126)}
"""16-bit formats: explicit bits of the significand, lowest exponent of a normal number."""


def step(values: np.ndarray, name: str) -> np.ndarray:
    """Return the distance between neighbouring numbers of a 16-bit format at the magnitude of ``values``.

    It is 2^(e - m) for values in [2^e, 2^(e+1)) with m bits of significand; subnormal numbers, and 0, share
    the smallest step.
    """
    if name not in FORMATS:
        raise BadInput(f"format {name!r} is not known: use one of {', '.join(FORMATS)}.")
    bits, lowest = FORMATS[name]
    _, exponent = np.frexp(np.abs(np.asarray(values, dtype=np.float64)))
    exponent = np.where(np.asarray(values) == 0, lowest, exponent - 1)
    return np.ldexp(1.0, np.maximum(exponent, lowest) - bits)


def near_ties(yes: np.ndarray, no: np.ndarray, name: str) -> np.ndarray:
    """Return, for each question, whether moving either maximum by one 16-bit step would flip the answer.

    The rule is strict: yes iff the yes maximum is larger. So a no flips where the margin (yes minus no) is
    above minus one step, an exact tie included, and a yes flips where the margin is at most one step, because
    it then falls into a tie. The larger step of the two maxima counts.

    Parameters
    ----------
    yes, no : ndarray, shape (n,)
        Maxima of the two sides.
    name : "float16" or "bfloat16"
    """
    margin = np.asarray(yes, np.float64) - np.asarray(no, np.float64)
    reach = np.maximum(step(yes, name), step(no, name))
    return (margin > -reach) & (margin <= reach)


def maxima(name: str, view: LogitsView, precision: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum of the yes side and of the no side of a token-set readout, two arrays of shape (n,).

    Parameters
    ----------
    name : str
        A readout with the aggregator "max".
    view : LogitsView
        Stored rows; see `readouts.read`, which checks them.
    precision : str
        Format to which logits are rounded first (`readouts.PRECISIONS`).
    """
    readout = readouts.get(name)
    if readout.aggregator != "max":
        raise BadInput(f"readout {name} compares no maxima: near-ties are counted for max readouts only.")
    readouts.read(name, view, precision)
    token_set = readouts.resolved(readout, view)
    logits = readouts.rounded(np.asarray(view.logits, np.float32), precision)
    columns = {token: column for column, token in enumerate(view.ids)}
    yes, no = (logits[:, [columns[token] for token in side]].max(axis=1) for side in (token_set.yes, token_set.no))
    return yes, no


def histogram(margins: np.ndarray, width: float) -> pd.DataFrame:
    """Count margins in bins of equal width whose edges are whole multiples of it.

    Bins are open below and closed above, so that a tie (margin 0) lies on the side of no, its answer. They
    run without a gap from the smallest to the largest margin; no margins give no bins.

    Returns
    -------
    pandas.DataFrame
        Columns low, high, count.
    """
    if not width > 0:
        raise BadInput(f"bin width {width!r} where a number above 0 is expected.")
    if not len(margins):
        return pd.DataFrame({"low": [], "high": [], "count": []}, dtype=float).astype({"count": int})
    bins = np.ceil(np.asarray(margins, np.float64) / width).astype(np.int64)
    numbers = np.arange(bins.min(), bins.max() + 1)
    count = np.bincount(bins - bins.min(), minlength=len(numbers))
    return pd.DataFrame({"low": (numbers - 1) * width, "high": numbers * width, "count": count})
