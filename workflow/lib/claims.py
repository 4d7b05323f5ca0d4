"""The ledger: every printed number of a paper against the number that this pipeline computes.

A claim names its place, the printed text, the file and cell in which it is recomputed, and the studies that can
settle it. The ledger compares; it never changes an expectation.
"""

import csv
import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pandas as pd

from workflow.lib import files, metrics
from workflow.lib.errors import BadInput
from workflow.lib.printed import Printed
from workflow.lib.printed import read as read_printed

LEDGER = Path(__file__).resolve().parents[1] / "claims" / "pope.csv"
REASONS = LEDGER.with_name("reasons.csv")
PAPER_STUDIES = ("released", "full")
"""Studies whose numbers may be compared with the papers'; every other study's are its own."""

SAME, DIFFERS = "same", "differs"
ELSEWHERE, IMPOSSIBLE = "not in this study", "cannot be recomputed"
VERDICTS = (SAME, DIFFERS, ELSEWHERE, IMPOSSIBLE)
NEVER = "none"
"""What stands as ``settled_by`` where no study can ever recompute a number."""
COLUMNS = ("claim", "place", "printed", "decimals", "file", "key", "settled_by")
# fmt: off
RESULT = (
    "claim", "place", "printed", "recomputed", "difference", "verdict", "reason", "counts", "file", "key",
    "settled_by",
)
# fmt: on
ANY = "any"
"""What stands as the study of a reason that holds in every study."""
# tables whose rows of printed metrics are inverted to counts, with the label-yes and label-no questions of a
# row
COUNTED = {"tables/table2.csv": (1500, 1500)}
_INVERTED = ("f1", "precision", "recall")
_ID = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_KEY = re.compile(r"(?P<column>\w+)\[(?P<row>[^\[\]=,]+=[^\[\]=,]+(,[^\[\]=,]+=[^\[\]=,]+)*)\]")
_QUOTIENT = re.compile(r"(?<=\])/")


@dataclass(frozen=True)
class Claim:
    """One printed number.

    Attributes
    ----------
    claim, place : str
        Identifier; table, row and column in the paper.
    printed : str
        The number exactly as printed.
    decimals : int
        Digits after its decimal point.
    file, key : str
        CSV file below the results folder, and its cell as ``column[name=value,name=value]``; two cells with a
        slash between them for a printed fraction. Empty only where nothing can ever recompute the number.
    settled_by : tuple of str
        Studies that can recompute it, some of `PAPER_STUDIES`; empty where none ever can.
    """

    claim: str
    place: str
    printed: str
    decimals: int
    file: str
    key: str
    settled_by: tuple[str, ...] = PAPER_STUDIES

    @property
    def number(self) -> Printed:
        """The printed number, read."""
        return read_printed(self.printed)

    @property
    def value(self) -> Decimal | None:
        """What the printed number says."""
        return self.number.value


@dataclass(frozen=True)
class Verdict:
    """What became of a claim; ``recomputed`` and ``difference`` are empty where nothing was compared."""

    verdict: str
    recomputed: str = ""
    difference: str = ""
    reason: str = ""


def load(path: str | Path = LEDGER) -> list[Claim]:
    """Read the claims of a paper in file order.

    Raises
    ------
    BadInput
        Names the line of a repeated identifier, an unreadable number, a wrong count of decimals or a
        malformed key.
    """
    found: dict[str, Claim] = {}
    for line, row in _rows(path, COLUMNS):
        where = f"{path} line {line}"
        if not _ID.fullmatch(row["claim"]) or row["claim"] in found:
            raise BadInput(f"{where}: claim {row['claim']!r} must be a dotted lower-case name that occurs once.")
        try:
            number = read_printed(row["printed"])
        except ValueError:
            raise BadInput(
                f"{where}: printed {row['printed']!r} is no number; copy it from the paper as printed."
            ) from None
        if row["decimals"] != str(number.decimals):
            raise BadInput(
                f"{where}: {row['printed']} has {number.decimals} decimals where {row['decimals']!r} is stated; "
                "correct it."
            )
        settled_by = tuple(row["settled_by"].split()) if row["settled_by"] != NEVER else ()
        if row["settled_by"] != NEVER and (not settled_by or set(settled_by) - set(PAPER_STUDIES)):
            raise BadInput(
                f"{where}: settled_by {row['settled_by']!r} must be {NEVER} or some of {' '.join(PAPER_STUDIES)}."
            )
        if settled_by and number.value is None:
            raise BadInput(f"{where}: printed {row['printed']!r} has no value, so settled_by must be {NEVER}.")
        if not row["place"]:
            raise BadInput(f"{where}: place is empty; say which table, row and column.")
        if settled_by or row["file"] or row["key"]:
            _check_cell(row, len(number.parts) or 1, where)
        found[row["claim"]] = Claim(**row | {"decimals": number.decimals, "settled_by": settled_by})
    return list(found.values())


def _check_cell(row: Mapping[str, str], cells: int, where: str) -> None:
    if not row["file"].endswith(".csv") or row["file"].startswith("/") or ".." in row["file"]:
        raise BadInput(f"{where}: file {row['file']!r} must be a .csv below the results folder.")
    keys = split_key(row["key"])
    if len(keys) != cells:
        raise BadInput(f"{where}: {row['printed']} needs {cells} cells where key {row['key']!r} names {len(keys)}.")
    for key in keys:
        parse_key(key, where)


def load_reasons(path: str | Path = REASONS) -> list[dict[str, str]]:
    """Read the known reasons: claim (or a pattern with ``*``), study (or "any") and reason.

    A reason stands beside every verdict but "same".
    """
    rows = [row for _, row in _rows(path, ("claim", "study", "reason"))]
    for row in rows:
        if row["study"] not in (*PAPER_STUDIES, ANY) or not row["reason"]:
            raise BadInput(
                f"{path}: claim {row['claim']} needs a study ({', '.join(PAPER_STUDIES)} or {ANY}) and a reason."
            )
    return rows


def _rows(path: str | Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        if tuple(reader.fieldnames or ()) != tuple(columns):
            raise BadInput(f"{path} has columns {reader.fieldnames}; the header must be {','.join(columns)}.")
        rows = [(reader.line_num, row) for row in reader]
    for number, row in rows:
        if None in row or None in row.values():
            raise BadInput(f"{path} line {number} has not {len(columns)} cells: quote commas.")
    return rows


def split_key(key: str) -> list[str]:
    """Return the cells that a key names: two for a fraction, else one."""
    return _QUOTIENT.split(key)


def parse_key(key: str, where: str = "") -> tuple[str, dict[str, str]]:
    """Split ``column[name=value,name=value]`` into the column and the values that select its row."""
    match = _KEY.fullmatch(key)
    names = [pair.split("=")[0] for pair in match["row"].split(",")] if match else []
    if not match or len(set(names)) != len(names):
        raise BadInput(f"{where or 'key'}: key {key!r} is not of the form column[name=value,name=value]; correct it.")
    return match["column"], dict(pair.split("=") for pair in match["row"].split(","))


def look_up(frame: pd.DataFrame, key: str) -> object:
    """Return the one cell of a table that a key selects; values are compared as text.

    Raises
    ------
    LookupError
        An unknown column, no such row, several such rows, or an empty cell; the message is a clause.
    """
    column, row = parse_key(key)
    missing = [name for name in (column, *row) if name not in frame]
    if missing:
        raise LookupError(f"there is no column {missing[0]}")
    chosen = frame
    for name, value in row.items():
        chosen = chosen[chosen[name].astype(str) == value]
    if len(chosen) != 1:
        described = ", ".join(f"{name} {value}" for name, value in row.items())
        raise LookupError(f"{len(chosen)} rows have {described}")
    cell = chosen[column].iloc[0]
    if isinstance(cell, str) and not cell:
        raise LookupError(f"{key} is an empty cell")
    return cell


def verdict(claim: Claim, frame: pd.DataFrame | None, study: str, reasons: Sequence[Mapping[str, str]] = ()) -> Verdict:
    """Judge one claim.

    "same" means that the recomputed value lies within half a unit of the last printed decimal, ends included,
    so that any correct rounding of it may have been printed; a fraction is the same where both its counts are.

    Parameters
    ----------
    claim : Claim
        What the paper prints.
    frame : pandas.DataFrame or None
        The table named by ``claim.file`` in this study; None where it does not exist.
    study : str
        Study that the frame comes from.
    reasons : sequence of mapping
        Known reasons; see `load_reasons`.
    """
    if study not in PAPER_STUDIES:
        return Verdict(
            ELSEWHERE,
            reason=f"{study} has numbers of its own; the paper's belong to {' and '.join(PAPER_STUDIES)}",
        )
    known = [
        row["reason"]
        for row in reasons
        if row["study"] in (study, ANY) and fnmatch.fnmatchcase(claim.claim, row["claim"])
    ]
    if not claim.settled_by:
        return Verdict(IMPOSSIBLE, reason="; ".join(known) or "no study can recompute it")
    if study not in claim.settled_by:
        return Verdict(ELSEWHERE, reason="; ".join([f"the {' and the '.join(claim.settled_by)} study has it", *known]))
    if frame is None:
        return Verdict(IMPOSSIBLE, reason="; ".join([f"{claim.file} does not exist in study {study}", *known]))
    if "study" in frame and set(frame["study"]) != {study}:
        raise BadInput(f"{claim.file} is of {', '.join(map(str, set(frame['study'])))} and not of {study}: rebuild it.")
    try:
        cells = [str(look_up(frame, key)) for key in split_key(claim.key)]
        recomputed = [Decimal(cell.replace(",", "")) for cell in cells]
    except (LookupError, ArithmeticError) as problem:
        clause = problem if isinstance(problem, LookupError) else f"{claim.key} holds no number"
        return Verdict(IMPOSSIBLE, reason="; ".join([f"{clause} in {claim.file}", *known]))
    same, difference = _compared(claim.number, recomputed)
    texts = cells if len(cells) == 1 else [f"{value.normalize():f}" for value in recomputed]
    return Verdict(SAME if same else DIFFERS, "/".join(texts), difference, "" if same else "; ".join(known))


def _compared(number: Printed, recomputed: Sequence[Decimal]) -> tuple[bool, str]:
    """Return whether a printed number and its recomputed cells agree, and their difference as text."""
    if not number.parts:
        return number.agrees(recomputed[0]), f"{recomputed[0] - number.value:f}"
    differences = [value - part for value, part in zip(recomputed, number.parts, strict=True)]
    return not any(differences), "/".join(f"{difference.normalize():f}" for difference in differences)


def tables_needed(claims: Iterable[Claim], study: str) -> list[str]:
    """Return the files in which a study recomputes claims; none in a study that is never compared."""
    return list(dict.fromkeys(claim.file for claim in claims if study in claim.settled_by))


def read_tables(claims: Sequence[Claim], paths: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Read the tables that claims name; each path ends in the name that its claims use."""
    names = dict.fromkeys(claim.file for claim in claims if claim.file)
    return {name: files.read_csv(path) for path in paths for name in names if path.endswith("/" + name)}


def check(
    claims: Sequence[Claim],
    tables: Mapping[str, pd.DataFrame],
    study: str,
    reasons: Sequence[Mapping[str, str]] = (),
) -> pd.DataFrame:
    """Judge all claims.

    Parameters
    ----------
    claims : sequence of Claim
        The ledger.
    tables : mapping
        Tables of this study by the name that claims use.
    study : str
        Study that the tables come from.
    reasons : sequence of mapping
        Known reasons of differences.

    Returns
    -------
    pandas.DataFrame
        One row a claim, columns `RESULT`. Where a printed row of F1, precision and recall fits one integer
        confusion table only, ``counts`` compares that table with the recomputed one.
    """
    verdicts = {claim.claim: verdict(claim, tables.get(claim.file), study, reasons) for claim in claims}
    counts = _counts(claims, verdicts)
    lines = []
    for claim in claims:
        settled_by = {"settled_by": " ".join(claim.settled_by) or NEVER}
        lines.append(vars(claim) | vars(verdicts[claim.claim]) | settled_by | {"counts": counts.get(claim.claim, "")})
    return pd.DataFrame(lines, columns=RESULT)


def _counts(claims: Sequence[Claim], verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    rows: dict[str, dict[str, Claim]] = {}
    for claim in claims:
        row, _, metric = claim.claim.rpartition(".")
        if claim.file in COUNTED and metric in _INVERTED and verdicts[claim.claim].recomputed:
            rows.setdefault(row, {})[metric] = claim
    compared: dict[str, str] = {}
    for row in rows.values():
        if len(row) < len(_INVERTED):
            continue
        positives, negatives = COUNTED[row["f1"].file]
        values = {name: float(claim.value) for name, claim in row.items()}
        try:
            printed = metrics.confusion_from_metrics(
                **values, yes_rate=None, positives=positives, negatives=negatives, decimals=row["f1"].decimals
            )
        except BadInput:
            continue
        recall, precision = (float(verdicts[row[name].claim].recomputed) for name in ("recall", "precision"))
        tp = round(recall * positives)
        fp = round(tp / precision) - tp if precision else 0
        recomputed = metrics.Confusion(tp=tp, fp=fp, fn=positives - tp, tn=negatives - fp)
        text = f"{SAME}: {_cells(printed)}"
        if recomputed != printed:
            text = f"{DIFFERS}: printed {_cells(printed)}; recomputed {_cells(recomputed)}"
        compared |= {claim.claim: text for claim in row.values()}
    return compared


def _cells(counts: metrics.Confusion) -> str:
    return f"tp {counts.tp} fp {counts.fp} fn {counts.fn} tn {counts.tn}"


def tally(ledger: pd.DataFrame, study: str) -> str:
    """Return the ledger in a few lines: the count of each verdict, each claim that differs, and why others are open."""
    count = Counter(ledger["verdict"])
    lines = [f"{len(ledger)} claims in study {study}: " + ", ".join(f"{count[name]} {name}" for name in VERDICTS)]
    lines += [
        f"  differs: {row.claim} printed {row.printed}, recomputed {row.recomputed} "
        f"({row.reason or 'reason not known'})"
        for row in ledger[ledger["verdict"] == DIFFERS].itertuples(index=False)
    ]
    for name in (ELSEWHERE, IMPOSSIBLE):
        reasons = Counter(ledger.loc[ledger["verdict"] == name, "reason"])
        lines += [f"  {name}: {number} ({reason})" for reason, number in reasons.most_common()]
    return "\n".join(lines)


def as_json(row: Mapping[str, object]) -> dict[str, object]:
    """Return one row of the ledger with its recomputed value and difference as numbers, null where empty.

    Both stay text for a fraction.
    """
    numbers = {}
    for name in ("recomputed", "difference"):
        text = str(row[name])
        numbers[name] = (text if "/" in text else json.loads(text)) if text else None
    return dict(row) | numbers
