"""The ledger: every printed number of a paper against the number that this pipeline computes.

A claim names its place, the printed text, and the file and cell in which it is recomputed. The ledger
compares; it never changes an expectation.
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

LEDGER = Path(__file__).resolve().parents[1] / "claims" / "pope.csv"
REASONS = LEDGER.with_name("reasons.csv")
PAPER_STUDIES = ("released", "full")
"""Studies whose numbers may be compared with the papers'; every other study's are its own."""

SAME, DIFFERS = "same", "differs"
ELSEWHERE, IMPOSSIBLE = "not in this study", "cannot be recomputed"
VERDICTS = (SAME, DIFFERS, ELSEWHERE, IMPOSSIBLE)
COLUMNS = ("claim", "place", "printed", "decimals", "file", "key")
RESULT = (
    "claim",
    "place",
    "printed",
    "recomputed",
    "difference",
    "verdict",
    "reason",
    "counts",
    "file",
    "key",
)
# tables whose rows of printed metrics are inverted to counts, with the label-yes and label-no questions of a
# row
COUNTED = {"tables/table2.csv": (1500, 1500)}
_INVERTED = ("f1", "precision", "recall")
_ID = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_PRINTED = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")
_KEY = re.compile(r"(?P<column>\w+)\[(?P<row>[^\[\]=,]+=[^\[\]=,]+(,[^\[\]=,]+=[^\[\]=,]+)*)\]")
# error of double arithmetic, far below any printed digit
_NOISE = Decimal("1e-12")


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
        CSV file below the results folder, and its cell as ``column[name=value,name=value]``.
    """

    claim: str
    place: str
    printed: str
    decimals: int
    file: str
    key: str

    @property
    def value(self) -> Decimal:
        """The printed number."""
        return Decimal(self.printed.replace(",", ""))


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
    for number, row in _rows(path, COLUMNS):
        where = f"{path} line {number}"
        if not _ID.fullmatch(row["claim"]) or row["claim"] in found:
            raise BadInput(f"{where}: claim {row['claim']!r} must be a dotted lower-case name that occurs once.")
        if not _PRINTED.fullmatch(row["printed"]):
            raise BadInput(f"{where}: printed {row['printed']!r} is no number; copy it from the paper as printed.")
        decimals = len(row["printed"].partition(".")[2])
        if row["decimals"] != str(decimals):
            raise BadInput(
                f"{where}: {row['printed']} has {decimals} decimals where {row['decimals']!r} is stated; correct it."
            )
        if not row["file"].endswith(".csv") or row["file"].startswith("/") or ".." in row["file"]:
            raise BadInput(f"{where}: file {row['file']!r} must be a .csv below the results folder.")
        if not row["place"]:
            raise BadInput(f"{where}: place is empty; say which table, row and column.")
        parse_key(row["key"], where)
        found[row["claim"]] = Claim(**row | {"decimals": decimals})
    return list(found.values())


def load_reasons(path: str | Path = REASONS) -> list[dict[str, str]]:
    """Read the known reasons of differences: claim (or a pattern with ``*``), study and reason."""
    rows = [row for _, row in _rows(path, ("claim", "study", "reason"))]
    for row in rows:
        if row["study"] not in PAPER_STUDIES or not row["reason"]:
            raise BadInput(f"{path}: claim {row['claim']} needs a study ({' or '.join(PAPER_STUDIES)}) and a reason.")
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
    so that any correct rounding of it may have been printed.

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
    known = "; ".join(
        row["reason"] for row in reasons if row["study"] == study and fnmatch.fnmatchcase(claim.claim, row["claim"])
    )
    if frame is None:
        return Verdict(IMPOSSIBLE, reason=known or f"{claim.file} does not exist in study {study}")
    if "study" in frame and set(frame["study"]) != {study}:
        raise BadInput(f"{claim.file} is of {', '.join(map(str, set(frame['study'])))} and not of {study}: rebuild it.")
    try:
        cell = look_up(frame, claim.key)
        recomputed = Decimal(str(cell).replace(",", ""))
    except (LookupError, ArithmeticError) as problem:
        clause = problem if isinstance(problem, LookupError) else f"{claim.key} holds no number"
        return Verdict(IMPOSSIBLE, reason=known or f"{clause} in {claim.file}")
    difference = recomputed - claim.value
    same = abs(difference) <= Decimal(5).scaleb(-claim.decimals - 1) + _NOISE
    return Verdict(SAME if same else DIFFERS, str(cell), f"{difference:f}", "" if same else known)


def tables_needed(claims: Iterable[Claim], study: str) -> list[str]:
    """Return the files in which claims are recomputed; none in a study that is never compared."""
    return list(dict.fromkeys(claim.file for claim in claims)) if study in PAPER_STUDIES else []


def read_tables(claims: Sequence[Claim], paths: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Read the tables that claims name; each path ends in the name that its claims use."""
    names = dict.fromkeys(claim.file for claim in claims)
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
    lines = [vars(claim) | vars(verdicts[claim.claim]) | {"counts": counts.get(claim.claim, "")} for claim in claims]
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
    """Return the ledger in a few lines: how many claims have which verdict, and each that differs."""
    count = Counter(ledger["verdict"])
    lines = [f"{len(ledger)} claims in study {study}: " + ", ".join(f"{count[name]} {name}" for name in VERDICTS)]
    lines += [
        f"  differs: {row.claim} printed {row.printed}, recomputed {row.recomputed} "
        f"({row.reason or 'reason not known'})"
        for row in ledger[ledger["verdict"] == DIFFERS].itertuples(index=False)
    ]
    return "\n".join(lines)


def as_json(row: Mapping[str, object]) -> dict[str, object]:
    """Return one row of the ledger with its recomputed value and difference as numbers, null where empty."""
    numbers = {name: json.loads(str(row[name])) if row[name] else None for name in ("recomputed", "difference")}
    return dict(row) | numbers
