"""Table 6 of the first paper: the notation, as a page made from a list."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from workflow.lib import files
from workflow.lib.errors import BadInput
from workflow.lib.tables import render

NOTATION = Path(__file__).resolve().parents[2] / "published" / "notation.csv"
COLUMNS = ("symbol", "tex", "meaning", "column")
# stand-ins that survive the escaping of LaTeX
_FIRST = 0xE000


@dataclass(frozen=True)
class Notation(render.Table):
    """A table whose symbols have a LaTeX form of their own."""

    def latex(self) -> str:
        """Return the table as LaTeX, the symbols in mathematics."""
        symbols = dict(zip(self.frame["symbol"], self.frame["tex"], strict=True))
        marks = {symbol: chr(_FIRST + place) for place, symbol in enumerate(symbols)}
        marked = render.Column(self.columns[0].heading, lambda row: marks[row["symbol"]], numeric=False)
        # a plain table, so that this method is not called again
        plain = render.Table(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
            | {"columns": [marked, *self.columns[1:]]}
        )
        text = plain.latex()
        for symbol, mark in marks.items():
            text = text.replace(mark, symbols[symbol])
        return text


def load(path: str | Path = NOTATION) -> pd.DataFrame:
    """Read the notation: symbol, its LaTeX, its meaning and the column of protocol_gap.csv that holds it."""
    frame = files.read_csv(path)
    if tuple(frame.columns) != COLUMNS:
        raise BadInput(f"{path} has columns {', '.join(frame)}; the header must be {','.join(COLUMNS)}.")
    if frame["symbol"].duplicated().any() or not frame["meaning"].astype(bool).all():
        raise BadInput(f"{path} has a symbol twice or a symbol without a meaning: correct it.")
    return frame


def build(notation: pd.DataFrame, study: str, note: str = "") -> Notation:
    """Print each symbol with its meaning.

    Parameters
    ----------
    notation : pandas.DataFrame
        Of `load`.
    study : str
        Study whose exhibit this is; the notation is the same in every study.
    note : str
        Sentence under the table; empty for none.
    """
    return Notation(
        label="Table 6",
        caption="Notation of the protocol gap; columns are those of statistics/protocol_gap.csv.",
        study=study,
        frame=notation.assign(study=study)[["study", *COLUMNS]],
        columns=[
            render.text("symbol", "Symbol"),
            render.text("meaning", "Meaning"),
            render.text("column", "Column"),
        ],
        notes=[note] if note else [],
    )
