"""Equations (1) to (5) of the first paper, evaluated on every split from paired counts.

(1) is the F1 gap in closed form; (2) the four cells of the eight-token rule in T, G, P and N; (3) those of the
two-token rule with the rates rho_N and phi; (4) the substitution of a split's own counts and rates on the first
split, (5) the same on the others. The numbering follows the references in the paper's text (Section 3.4 and
Appendix C). Beside them stand what the text derives from (1): the bound at phi = 0, the rates of the first split
put into the others' counts, and the pooled flip rate.
"""

from collections.abc import Iterator
from fractions import Fraction

import pandas as pd

from workflow.lib.errors import BadInput
from workflow.lib.metrics import ProtocolGap, Transition

COLUMNS = ("study", "model", "split", "equation", "quantity", "value")
BOUND, TRANSPLANTED, POOLED = "bound", "transplanted", "pooled"
_CELLS = ("yes_yes", "yes_no", "no_yes", "no_no", "unknown")


def gaps(transitions: pd.DataFrame) -> dict[tuple[str, str], ProtocolGap]:
    """Return Eq. (1) per (model, split), in the order of the rows.

    Parameters
    ----------
    transitions : pandas.DataFrame
        ``statistics/transitions.csv``: one row a label.
    """
    rows: dict[tuple[str, str], dict[str, Transition]] = {}
    for row in transitions.to_dict("records"):
        labels = rows.setdefault((row["model"], row["split"]), {})
        if row["label"] in labels:
            raise BadInput(
                f"statistics/transitions.csv has model {row['model']}, split {row['split']}, label {row['label']} "
                "twice: rebuild it."
            )
        labels[row["label"]] = Transition(row["label"], **{name: int(row[name]) for name in _CELLS})
    for (model, split), labels in rows.items():
        if set(labels) != {"yes", "no"}:
            raise BadInput(
                f"statistics/transitions.csv has labels {', '.join(labels)} of model {model}, split {split} where yes "
                "and no are expected: rebuild it."
            )
    return {key: ProtocolGap(labels["yes"], labels["no"]) for key, labels in rows.items()}


def evaluate(transitions: pd.DataFrame) -> pd.DataFrame:
    """Evaluate every equation on every model and split.

    Parameters
    ----------
    transitions : pandas.DataFrame
        ``statistics/transitions.csv``, the splits of a model in the study's order.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`. A rate without a denominator enters as 0; ``statistics/protocol_gap.csv`` names it.
    """
    studies = list(dict.fromkeys(transitions["study"]))
    if len(studies) != 1:
        raise BadInput(f"statistics/transitions.csv holds {len(studies)} studies where 1 is expected: rebuild it.")
    lines = []
    donors: dict[str, ProtocolGap] = {}
    for (model, split), gap in gaps(transitions).items():
        substituted = "5" if model in donors else "4"
        donor = donors.setdefault(model, gap)
        for equation, quantity, value in _evaluated(gap, donor, substituted):
            lines.append((studies[0], model, split, equation, quantity, float(value)))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def _evaluated(
    gap: ProtocolGap, donor: ProtocolGap, substituted: str
) -> Iterator[tuple[str, str, int | float | Fraction]]:
    p, n, t, g = gap.counts
    rho_n, phi = gap.no.fraction, gap.yes.fraction
    yield from (("1", "f1_reference", gap.f1_reference), ("1", "f1_tested", gap.f1_tested_closed_form))
    yield "1", "gap", gap.f1_reference - gap.f1_tested_closed_form
    yield "1", "gap_counted", gap.f1_reference - gap.f1_tested
    yield "1", "condition_holds", int(gap.condition_holds)
    yield from (("2", "tp", t), ("2", "fp", n - g), ("2", "fn", p - t), ("2", "tn", g))
    yield from (("3", "tp", t + phi * (p - t)), ("3", "fp", n - g + rho_n * g))
    yield from (("3", "fn", (1 - phi) * (p - t)), ("3", "tn", (1 - rho_n) * g))
    yield from ((substituted, "flips_to_fp", rho_n * g), (substituted, "flips_to_tp", phi * (p - t)))
    yield substituted, "f1_tested", gap.f1_tested_closed_form
    yield from ((BOUND, "numerator", 2 * t), (BOUND, "denominator", t + n - g + rho_n * g + p))
    yield BOUND, "f1_tested", gap.f1_lower_bound
    yield from ((TRANSPLANTED, "rho_n", donor.no.fraction), (TRANSPLANTED, "phi", donor.yes.fraction))
    yield TRANSPLANTED, "f1_tested", gap.f1_transplanted(donor)
    yield POOLED, "flip_rate", gap.pooled_flip_rate
