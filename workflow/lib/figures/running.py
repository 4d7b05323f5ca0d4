"""The running yes-rate of both rules over a stream of questions, as figures 3 and 4 plot it."""

import numpy as np
import pandas as pd

from workflow.lib.errors import BadInput

READOUTS = {"two_token": "legacy_2tok", "eight_token": "legacy_8tok"}
COLUMNS = ("study", "model", "split", "question", "id", *READOUTS, "label_yes")


def yes_rates(answers: pd.DataFrame, study: str, model: str) -> pd.DataFrame:
    """Return the share of yes among the first k questions, for every k.

    Parameters
    ----------
    answers : pandas.DataFrame
        Answers of one model on one split (`workflow.lib.answers`), in any order.
    study, model : str
        Written into every row.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`, one row a question in the order of ids; ``question`` counts from 1; ``two_token`` and
        ``eight_token`` are the running shares of yes among the answers; ``label_yes`` is the share of label yes
        in the whole split, the same in every row.
    """
    streams = {}
    for column, readout in READOUTS.items():
        rows = answers[answers["readout"] == readout].sort_values("id", kind="stable")
        if rows.empty:
            raise BadInput(
                f"the answers of {model} have no readout {readout}: put it among readouts.names of the configuration."
            )
        streams[column] = rows
    first = streams["two_token"]
    if not np.array_equal(first["id"], streams["eight_token"]["id"]):
        raise BadInput(f"the two rules answer other questions of {model}: read its answers again.")
    count = np.arange(1, len(first) + 1)
    rates = {column: (rows["answer"] == "yes").to_numpy().cumsum() / count for column, rows in streams.items()}
    return pd.DataFrame(
        {
            "study": study,
            "model": model,
            "split": first["split"].to_numpy(),
            "question": count,
            "id": first["id"].to_numpy(),
            **rates,
            "label_yes": float((first["label"] == "yes").mean()),
        },
        columns=list(COLUMNS),
    )
