"""Table 12 of the first paper: the surveyed papers with a LLaVA-1.5-7B baseline on POPE."""

import pandas as pd

from workflow.lib.tables import render, table3

CAPTION = "Papers that report a LLaVA-1.5-7B baseline on POPE, values as F1 × 100 as reported by each paper."


def build(surveyed: pd.DataFrame, study: str, note: str = "") -> render.Table:
    """Print the survey as Table 12 does; the rows are those of Table 3, whose parameters see."""
    return table3.survey_table("Table 12", CAPTION, "Paper", surveyed, study, note)
