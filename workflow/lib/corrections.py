"""Inference-time corrections as readouts: stored logits and signals to answers, for any strength beta.

Two kinds exist (first paper, Appendix F). A gate lowers the yes side where a certainty c is low and says yes
iff (yes - no) - beta (1 - c) > 0. A contrast subtracts a second pass on a noisy image and says yes iff
(yes - no) - beta (yes - no)_noise > 0. ``yes`` and ``no`` are maxima of a token set; a tie says no.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from workflow.lib import metrics
from workflow.lib.errors import BadInput
from workflow.lib.metrics import Confusion

VARIANTS = ("as run", "paper")
"""Which definition of a correction: that of the released code, or that of the paper's text."""
UNIFORM = 0.5
"""Certainty of every question under uniform suppression."""
# fmt: off
COLUMNS = (
    "study", "model", "split", "method", "beta", "variant", "tp", "fp", "fn", "tn", "f1", "precision", "recall",
    "basis", "degenerate",
)
# fmt: on
COUNTS = ("tp", "fp", "fn", "tn")


@dataclass(frozen=True)
class Method:
    """One correction.

    Attributes
    ----------
    name, display : str
        Key in results; name in the paper's Table 8.
    kind : "baseline", "gate" or "contrast"
    reads : mapping of variant to tuple of str
        Columns of the signals that each variant needs: one certainty, or the two maxima of the second pass.
        A method whose text and code agree has the variant "as run" only.
    betas : tuple of float
        Strengths that Table 8 prints.
    tabled : bool
        Whether Table 8 has a row of it.
    difference : str
        How text and code differ, "" where they agree.
    """

    name: str
    display: str
    kind: Literal["baseline", "gate", "contrast"]
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"as run": ()})
    betas: tuple[float, ...] = (1.0,)
    tabled: bool = True
    difference: str = ""

    def printed(self, beta: float) -> str:
        """Return the name of the row that Table 8 prints; beta stands in it where several are printed."""
        return f"{self.display} (β = {beta:.1f})" if len(self.betas) > 1 else self.display


def _gate(name: str, display: str, difference: str = "", formula: bool = True, **rest) -> Method:
    """Declare a gate on the certainty of that name; ``formula`` says whether the paper's text defines its certainty."""
    reads = {"as run": (name,)}
    if difference and formula:
        reads["paper"] = (f"{name}_paper",)
    return Method(name, display, "gate", reads, difference=difference, **rest)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("baseline", "Eight-token baseline", "baseline", betas=(0.0,)),
        _gate(
            "clip_b_certainty",
            "CLIP-B/32 certainty",
            "text: cosine of patch features; code: the best of a 4 x 4 grid of crops and the whole image, "
            "sigmoid(20 (s - 0.22))",
            betas=(1.0, 1.5),
        ),
        _gate("clip_l_certainty", "CLIP-L/14-336 certainty"),
        _gate(
            "entropy_certainty",
            "Entropy gating",
            "text: entropy of the answer token's distribution; code: entropy of the attention from spatial "
            "words to image patches",
        ),
        _gate(
            "magnitude_certainty",
            "Magnitude gating",
            "text: share of the yes token in the vocabulary's distribution; code: attention from spatial "
            "words to patches over ten times uniform, at most 1",
        ),
        _gate(
            "cls_certainty",
            "CLS feature similarity",
            "text: cosine of CLIP-L's CLS embedding and the noun; code: entropy of the attention from "
            "position 0 to patches",
        ),
        _gate(
            "object_noun_certainty",
            "Object-noun CLIP",
            "text: cosine of the whole image under CLIP-B/32 and the noun; code: entropy of the attention "
            "from the noun's tokens to patches",
        ),
        Method("uniform", "Uniform suppression", "gate"),
        Method(
            "vcd",
            "VCD-noise perturbation",
            "contrast",
            {"as run": ("vcd_yes_max", "vcd_no_max"), "paper": ("vcd_yes_max_paper", "vcd_no_max_paper")},
            difference="text: Gaussian noise on the image embedding; code: an image of uniformly random pixels",
        ),
        _gate(
            "midpoint_certainty",
            "Generation midpoint gating",
            "text: the logit gap at an intermediate generation step, without a formula; code: entropy of the "
            "answer position's attention in layers 14 to 19",
            formula=False,
            tabled=False,
        ),
    )
}
"""All corrections in the order of Table 8. The paper announces nine and lists nine in the text; the last of
this registry is among them and has no row, while Table 8 fills its nine rows with two strengths of one."""


def get(name: str) -> Method:
    """Return the method of that name; BadInput where there is none."""
    if name not in METHODS:
        raise BadInput(f"correction {name!r} is not known: use one of {', '.join(METHODS)}.")
    return METHODS[name]


def gate_scores(yes: np.ndarray, no: np.ndarray, certainty: np.ndarray | float, beta: float) -> np.ndarray:
    """Return (yes - no) - beta (1 - certainty) as float64; certainty 1 leaves the gap as it is."""
    certainty = np.asarray(certainty, np.float64)
    if not ((certainty >= 0) & (certainty <= 1)).all():
        raise BadInput("a certainty is outside 0 to 1: measure that signal again.")
    return _gap(yes, no) - _checked(beta) * (1 - certainty)


def contrast_scores(
    yes: np.ndarray, no: np.ndarray, noise_yes: np.ndarray, noise_no: np.ndarray, beta: float
) -> np.ndarray:
    """Return (yes - no) - beta (yes - no)_noise as float64.

    References
    ----------
    Leng et al., Visual Contrastive Decoding (CVPR 2024), with the contrast's weight 1 + alpha left at 1.
    """
    return _gap(yes, no) - _checked(beta) * _gap(noise_yes, noise_no)


def _gap(yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.asarray(yes, np.float64) - np.asarray(no, np.float64)


def _checked(beta: float) -> float:
    if isinstance(beta, bool) or not np.isfinite(beta):
        raise BadInput(f"beta {beta!r} where a finite number is expected.")
    return float(beta)


def missing(method: Method, frame: pd.DataFrame, variant: str) -> list[str]:
    """Return the columns that a variant of a method needs and these signals lack."""
    return [name for name in method.reads.get(variant, ()) if name not in frame]


def scores(name: str, frame: pd.DataFrame, beta: float, variant: str = "as run") -> np.ndarray:
    """Return the score of every question under one correction; yes iff it is above 0.

    Parameters
    ----------
    name : str
        One of `METHODS`.
    frame : pandas.DataFrame
        Signals (`workflow.lib.signals`).
    beta : float
        Strength; 0 gives the baseline. The baseline ignores it.
    variant : "as run" or "paper"

    Raises
    ------
    BadInput
        Unknown name, a variant that the method has not, or a signal that these rows lack.
    """
    method = get(name)
    if variant not in method.reads:
        raise BadInput(f"correction {name} has no variant {variant!r}: use {' or '.join(method.reads)}.")
    lacking = missing(method, frame, variant)
    if lacking:
        raise BadInput(f"correction {name} ({variant}) needs signal {lacking[0]}, which was not measured.")
    yes, no = frame["yes_max"].to_numpy(), frame["no_max"].to_numpy()
    columns = [frame[column].to_numpy() for column in method.reads[variant]]
    if method.kind == "contrast":
        return contrast_scores(yes, no, *columns, beta)
    if method.kind == "baseline":
        return _gap(yes, no)
    return gate_scores(yes, no, *(columns or [UNIFORM]), beta)


def read(name: str, frame: pd.DataFrame, beta: float, variant: str = "as run") -> np.ndarray:
    """Return the answers "yes" or "no" of one correction; arguments as in `scores`."""
    return np.where(scores(name, frame, beta, variant) > 0, "yes", "no")


def sweep(frame: pd.DataFrame, betas: Sequence[float] = ()) -> pd.DataFrame:
    """Count every correction that these signals allow, in every variant.

    Parameters
    ----------
    frame : pandas.DataFrame
        Signals.
    betas : sequence of float
        Strengths; none for those that Table 8 prints of each method. The baseline has none.

    Returns
    -------
    pandas.DataFrame
        Columns method, beta, variant, tp, fp, fn, tn; methods in the order of `METHODS`, betas ascending.
    """
    rows = []
    for method in METHODS.values():
        strengths = method.betas if method.kind == "baseline" or not len(betas) else sorted(map(float, betas))
        for variant in (name for name in VARIANTS if name in method.reads):
            if missing(method, frame, variant):
                continue
            for beta in strengths:
                counted = metrics.confusion(frame["label"], read(method.name, frame, beta, variant).tolist())
                cells = {name: getattr(counted, name) for name in COUNTS}
                rows.append({"method": method.name, "beta": beta, "variant": variant} | cells)
    return pd.DataFrame(rows, columns=["method", "beta", "variant", *COUNTS])


def table(
    measured: Iterable[tuple[pd.DataFrame, Mapping]],
    released: Iterable[pd.DataFrame],
    study: str,
    betas: Sequence[float] = (),
) -> pd.DataFrame:
    """Return counts and metrics of all corrections that a study knows.

    Parameters
    ----------
    measured : iterable of (signals, metadata)
        As `workflow.lib.signals.load` returns them; basis "signals".
    released : iterable of pandas.DataFrame
        Counts of released summaries: model, split, method, beta, variant, tp, fp, fn, tn; basis "released
        summary". A correction known in both ways has a row of either basis.
    study : str
    betas : sequence of float
        As in `sweep`.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`: first the released summaries, then the signals.
    """
    frames = [counts.assign(basis="released summary") for counts in released]
    for frame, metadata in measured:
        if metadata["study"] != study:
            raise BadInput(
                f"signals of study {metadata['study']!r} were given to study {study!r}: keep each study in its "
                "own folder."
            )
        origin = {"model": metadata["model"], "split": metadata["split"], "basis": "signals"}
        frames.append(sweep(frame, betas).assign(**origin))
    rows = []
    for row in (row for frame in frames for row in frame.to_dict("records")):
        counted = Confusion(**{name: row[name] for name in COUNTS})
        found = {name: getattr(counted, name) for name in ("f1", "precision", "recall", "degenerate")}
        rows.append({"study": study} | row | found)
    return pd.DataFrame(rows, columns=list(COLUMNS))
