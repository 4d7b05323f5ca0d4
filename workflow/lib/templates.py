"""The readouts under several prompt templates of one model: the counts behind Table 11."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workflow.lib import statistics
from workflow.lib.errors import BadInput

COLUMNS = ("study", "model", "split", "template", *statistics.CONFUSION_COLUMNS[3:])


def table(paths: Mapping[str, str | Path], study: str, model: str, readouts: list[str]) -> pd.DataFrame:
    """Count the answers of every template and readout against the labels.

    Parameters
    ----------
    paths : mapping
        Template to its answers (``templates/{model}/{template}/answers.parquet``), in the order wanted.
    study, model : str
        What the answers must belong to.
    readouts : list of str
        Readouts in force, in the order of the rows; others are left out.

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`: those of ``statistics/confusion.csv`` and the template.

    Raises
    ------
    BadInput
        Answers of another study or model, or templates that were asked other questions.
    """
    frames, asked = [], {}
    for template, path in paths.items():
        held = statistics.load_answers(path)
        if held.model != model:
            raise BadInput(
                f"{path} holds answers of model {held.model!r} where {model!r} is expected: read them again."
            )
        questions = held.questions()
        asked[template] = set(zip(questions["split"], questions["id"], questions["label"], strict=True))
        first = next(iter(asked))
        if asked[template] != asked[first]:
            raise BadInput(
                f"{path} answers other questions than template {first!r}: templates are compared on the same "
                "questions, so read both again."
            )
        counted = statistics.confusion_table([held], [], statistics.Study(study, [model], [held.split], readouts))
        frames.append(counted.assign(template=template))
    return pd.concat(frames, ignore_index=True)[list(COLUMNS)]
