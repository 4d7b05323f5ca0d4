"""A table in three forms: CSV with full precision, Markdown and LaTeX with the printed decimals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.lib import files
from workflow.lib.errors import BadInput

SPLITS = ("adversarial", "popular", "random")
_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "→": r"$\to$",
    "Δ": r"$\Delta$",
    "φ": r"$\varphi$",
    "ρ": r"$\rho$",
    "†": r"$\dagger$",
}


@dataclass(frozen=True)
class Column:
    """One printed column: its heading and what stands in it for a row of the frame.

    ``cell`` gets the row as a mapping and returns the printed text. Columns with ``numeric`` are
    right-aligned.
    """

    heading: str
    cell: Callable[[Mapping[str, Any]], str]
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """A table exhibit.

    Attributes
    ----------
    label : str
        Name of the exhibit, such as "Table 4".
    caption : str
        One or two sentences without the study.
    study : str
        Study that the numbers come from; printed in the caption.
    frame : pandas.DataFrame
        The CSV layout with full precision; an empty string where a cell has no meaning.
    columns : sequence of Column
        The paper's printed layout.
    notes : sequence of str
        Sentences under the table.
    """

    label: str
    caption: str
    study: str
    frame: pd.DataFrame
    columns: Sequence[Column]
    notes: Sequence[str] = ()

    def printed(self) -> list[list[str]]:
        """Return the printed cells, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.frame.to_dict("records")]

    def title(self) -> str:
        """Return the caption with the study in it."""
        return f"{self.caption} Study: {self.study}."

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---:" if column.numeric else ":---" for column in self.columns]
        lines = [[_markdown(column.heading) for column in self.columns], rule]
        lines += [[_markdown(cell) for cell in row] for row in self.printed()]
        blocks = [
            f"**{self.label}.** {_markdown(self.title())}",
            "\n".join(f"| {' | '.join(line)} |" for line in lines),
        ]
        return "\n\n".join([*blocks, *(_markdown(note) for note in self.notes)]) + "\n"

    def latex(self) -> str:
        """Return the table as LaTeX for the package booktabs."""
        number = self.label.removeprefix("Table ")
        aligned = "".join("r" if column.numeric else "l" for column in self.columns)
        rows = [" & ".join(_tex(cell) for cell in row) + r" \\" for row in self.printed()]
        notes = [rf"\par\smallskip{{\footnotesize {_tex(note)}}}" for note in self.notes]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\renewcommand{{\thetable}}{{{_tex(number)}}}",
            rf"\caption{{{_tex(self.title())}}}",
            rf"\begin{{tabular}}{{{aligned}}}",
            r"\toprule",
            " & ".join(_tex(column.heading) for column in self.columns) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def save(self, csv: str | Path, md: str | Path, tex: str | Path) -> None:
        """Write the three forms."""
        files.write_csv(self.frame, csv)
        files.write_text(self.markdown(), md)
        files.write_text(self.latex(), tex)


def number(value: float | str, decimals: int, signed: bool = False) -> str:
    """Return a number with fixed decimals and a comma between thousands; an empty string stays empty.

    The shortest decimal that reads back as ``value`` is rounded, half away from zero: 0.00005 at four
    decimals gives 0.0001, although the double nearest to it is a little smaller or larger. A value that
    rounds to zero has no minus sign; ``signed`` puts a plus before every other value and before zero.
    """
    if isinstance(value, str):
        if value:
            raise ValueError(f"{value!r} is no number")
        return ""
    rounded = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)
    if rounded.is_zero():
        rounded = abs(rounded)
    return f"{rounded:{'+' if signed else ''},f}"


def text(name: str, heading: str, printed: Callable[[Any], str] = str) -> Column:
    """Return a column of words."""
    return Column(heading, lambda row: printed(row[name]), numeric=False)


def value(name: str, heading: str, decimals: int, signed: bool = False) -> Column:
    """Return a column of numbers with fixed decimals; see `number`."""
    return Column(heading, lambda row: number(row[name], decimals, signed))


def model_rows(frame: pd.DataFrame, model: str, source: str) -> pd.DataFrame:
    """Return the rows of the model that a table is about; BadInput where there are none."""
    rows = frame[frame["model"] == model]
    if rows.empty:
        known = ", ".join(dict.fromkeys(frame["model"]))
        raise BadInput(f"{source} has no rows of model {model!r} (it has {known}): add the model to run.models.")
    return rows


def study_of(frame: pd.DataFrame) -> str:
    """Return the study that all rows of a statistic come from."""
    studies = sorted(set(frame["study"]))
    if len(studies) != 1:
        raise BadInput(
            f"statistics come from {len(studies)} studies ({', '.join(studies)}): rebuild them in one study."
        )
    return studies[0]


def in_split_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows by split in the papers' order; the order within a split is kept."""
    return frame.sort_values("split", key=lambda split: split.map(SPLITS.index), kind="stable", ignore_index=True)


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("_", r"\_").replace("*", r"\*")


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text).replace(r"$\rho$\_N", r"$\rho_N$")
