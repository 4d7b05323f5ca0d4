"""Table 1 of the first paper: the first generated token."""

import pandas as pd

from workflow.lib.errors import BadInput
from workflow.lib.tables import render

# id -> heading as printed
COLUMNS = {3869: "‘ Yes’ (3869)", 1939: "‘ No’ (1939)", 3582: "yes (3582)", 1217: "no (1217)"}


def build(first_tokens: pd.DataFrame, model: str, note: str = "") -> render.Table:
    """Count how often each of four ids is the first generated token, per split and in all.

    Parameters
    ----------
    first_tokens : pandas.DataFrame
        ``statistics/first_tokens.csv``.
    model : str
        Model that the table is about.
    note : str
        Sentence under the table; empty for none.
    """
    rows = render.model_rows(first_tokens, model, "statistics/first_tokens.csv")
    study = render.study_of(rows)
    counts = {
        (row.split, row.token_id): row.count
        for row in rows[["split", "token_id", "count"]].itertuples(index=False, name="Cell")
    }
    lines = []
    for split in [name for name in render.SPLITS if name in set(rows["split"])]:
        missing = [token for token in COLUMNS if (split, token) not in counts]
        if missing:
            raise BadInput(
                f"statistics/first_tokens.csv has no row of token {missing[0]} for model {model}, split "
                f"{split}: declare "
                "the id among the model's candidates."
            )
        lines.append({"study": study, "split": split} | {f"id_{token}": counts[split, token] for token in COLUMNS})
    total = {f"id_{token}": sum(line[f"id_{token}"] for line in lines) for token in COLUMNS}
    lines.append({"study": study, "split": "total"} | total)
    return render.Table(
        label="Table 1",
        caption="First generated token by split, as counts of questions.",
        study=study,
        frame=pd.DataFrame(lines),
        columns=[
            render.text("split", "Split", str.capitalize),
            *(render.value(f"id_{token}", heading, 0) for token, heading in COLUMNS.items()),
        ],
        notes=[note] if note else [],
    )
