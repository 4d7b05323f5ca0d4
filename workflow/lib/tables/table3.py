"""Table 3 of the first paper: what surveyed methods report beside their own baselines."""

import pandas as pd

from workflow.lib import survey
from workflow.lib.tables import render

CAPTION = "Baseline, result and gain that surveyed papers report for LLaVA-1.5-7B on POPE, as F1 × 100."
ABBREVIATED = {"adversarial": "adv.", "popular": "pop.", "random": "rand."}
COLUMNS = ("study", "paper", "citation", "split", "baseline", "result", "reported_gain", "gain", "readout")


def build(surveyed: pd.DataFrame, study: str, note: str = "") -> render.Table:
    """Print each paper's own values and the gain computed from them.

    Parameters
    ----------
    surveyed : pandas.DataFrame
        Of `survey.load`.
    study : str
        Study whose exhibit this is; the values are the papers' in every study.
    note : str
        Sentence under the table; empty for none.
    """
    return survey_table("Table 3", CAPTION, "Method", surveyed, study, note)


def survey_table(label: str, caption: str, heading: str, surveyed: pd.DataFrame, study: str, note: str) -> render.Table:
    """Return the survey in the layout that Tables 3 and 12 share."""
    notes = ["Surveyed values are the same in every study; gains are result minus baseline."]
    unlike = survey.disagreeing(surveyed)
    if unlike:
        notes.append(f"Another gain than the difference is reported by {', '.join(unlike)}.")
    return render.Table(
        label=label,
        caption=caption,
        study=study,
        frame=surveyed.assign(study=study)[list(COLUMNS)],
        columns=[
            render.Column(
                heading,
                lambda row: f"{row['paper']} {row['citation']} ({ABBREVIATED[row['split']]})",
                numeric=False,
            ),
            render.value("baseline", "Rep. base.", 2),
            render.value("result", "Rep. res.", 2),
            render.value("gain", "Gain", 2, signed=True),
            render.text("readout", "Readout"),
        ],
        notes=[*notes, *([note] if note else [])],
    )
