"""List the numbers of a paper's text that no claim of the ledger covers.

    python checks/uncovered_numbers.py PATH/TO/pope_audit.txt

The text is the paper's own, one paragraph a line and the cells of a table separated by tabs; it is no part of this
project. A number is a run of digits or a word from zero to ten. It is covered by one claim that prints it at this
place, or it stands on ``workflow/claims/not_claims.csv`` with the reason why it is no claim. Every claim must be found
at exactly one place, and every row of that list somewhere. The exit status is 1 where anything is left.

Places. A claim on a table's cell is placed "Table 4, row, column"; the table of the text must print its number as
often as claims say. Every other claim is placed "Section 3.4: words before … words after", where the ellipsis stands
for the number; mathematics is read without its markup.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workflow.lib import claims, printed
from workflow.lib.claims import Claim

NOT_CLAIMS = claims.LEDGER.with_name("not_claims.csv")
TABLES = ("1", "2", "7", "3", "4", "5", "6", "8", "9", "10", "11", "12", "13")
"""Numbers of the tables in the order in which the text has them."""
MARK = "…"
NUMBER = re.compile(
    r"(?:(?<![\w.)\]])[+-](?=\d))?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)*(?: × 10\^-?\d+|%)?"
    rf"|\b(?:{'|'.join(printed.WORDS)})\b",
    re.IGNORECASE,
)
_COMMANDS = {"times": "×", "varphi": "φ", "rho": "ρ", "ell": "ℓ", "beta": "β"}
_STYLES = re.compile(r"\\(?:mathrm|operatorname|mathcal|hat|lvert|rvert)\b\s*")


def normalised(line: str) -> str:
    """Return a line with its mathematics as plain text: no dollar signs, braces or commands."""
    text = _STYLES.sub("", line.replace("{,}", ",").replace("\u2212", "-"))
    text = re.sub(r"10\^\{(-?\d+)\}", r"10^\1", text)
    text = re.sub(r"\\([a-zA-Z]+)", lambda match: _COMMANDS.get(match[1], match[1]), text)
    text = re.sub(r"[${}\\]", "", text)
    return re.sub(r"[^\S\t]+", " ", re.sub(r" ?× ?10\^", " × 10^", text))


@dataclass(frozen=True)
class Found:
    """One number of the text: its line (counted from 1), where it begins in the normalised line, and how it reads."""

    line: int
    start: int
    text: str

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)


def numbers(line: int, text: str) -> Iterator[Found]:
    """Yield every number of a normalised line."""
    for match in NUMBER.finditer(text):
        yield Found(line, match.start(), match.group())


def blocks(lines: Sequence[str]) -> list[list[int]]:
    """Return the line numbers of each table, in the order of the text: lines with tabs that follow each other."""
    found: list[list[int]] = []
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            if found and found[-1][-1] == number - 1:
                found[-1].append(number)
            else:
                found.append([number])
    return found


def load_not_claims(path: Path = NOT_CLAIMS) -> list[dict[str, str]]:
    """Read the numbers that are no claims: number, context (it stands in it as the number is printed) and reason."""
    with open(path, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True))
    for line, row in enumerate(rows, 2):
        if set(row) != {"number", "context", "reason"} or not all(row.values()):
            raise SystemExit(f"{path} line {line}: number, context and reason are needed.")
        if row["number"] not in row["context"]:
            raise SystemExit(f"{path} line {line}: the context {row['context']!r} does not hold {row['number']!r}.")
    return rows


def inside(text: str, context: str) -> Iterator[tuple[int, int]]:
    """Yield where a context begins and ends in a text, whenever it occurs."""
    start = text.find(context)
    while start >= 0:
        yield start, start + len(context)
        start = text.find(context, start + 1)


def is_cell(claim: Claim) -> bool:
    """Whether a claim is placed in a table's cell, and not by words."""
    return MARK not in claim.place


def spans(claim: Claim, texts: dict[int, str]) -> list[tuple[int, int, int]]:
    """Return line, start and end of the number of a claim that is placed by words, wherever these occur."""
    before, _, after = claim.place.partition(": ")[2].partition(MARK)
    found = []
    for line, text in texts.items():
        for start, end in inside(text, before + claim.printed + after):
            found.append((line, start + len(before), end - len(after)))
    return found


def check(lines: Sequence[str], ledger: Sequence[Claim], excused: Sequence[dict[str, str]]) -> list[str]:
    """Return a sentence for every number without a claim, claim without a number and excuse without a use.

    Parameters
    ----------
    lines : sequence of str
        The text.
    ledger : sequence of Claim
    excused : sequence of dict
        See `load_not_claims`.
    """
    texts = {number: normalised(line) for number, line in enumerate(lines, 1)}
    left: set[Found] = {found for number, text in texts.items() for found in numbers(number, text)}
    problems = []
    found_blocks = blocks(lines)
    tables = dict(zip(TABLES, found_blocks, strict=False))
    if len(found_blocks) != len(TABLES):
        problems.append(f"the text has {len(found_blocks)} tables where {len(TABLES)} are known")
    used: Counter[int] = Counter()
    for found in sorted(left, key=lambda found: (found.line, found.start)):
        for place, row in enumerate(excused):
            around = inside(texts[found.line], row["context"]) if row["number"] == found.text else ()
            if any(start <= found.start and found.end <= end for start, end in around):
                used[place] += 1
                left.discard(found)
                break
    problems += [f"no number needs the excuse {row['context']!r}" for at, row in enumerate(excused) if not used[at]]

    wanted = Counter((claim.place.split(",")[0], claim.printed) for claim in ledger if is_cell(claim))
    for name, block in tables.items():
        for found in sorted((found for found in left if found.line in block), key=lambda found: found.start):
            if wanted[f"Table {name}", found.text]:
                wanted[f"Table {name}", found.text] -= 1
                left.discard(found)
    problems += [f"{table} does not print {text} that often: {n} too many" for (table, text), n in wanted.items() if n]

    outside = {number: text for number, text in texts.items() if not any(number in block for block in tables.values())}
    for claim in (claim for claim in ledger if not is_cell(claim)):
        places = spans(claim, outside)
        if len(places) != 1:
            problems.append(f"claim {claim.claim} stands at {len(places)} places: {claim.place!r}")
            continue
        line, start, end = places[0]
        covered = {found for found in left if found.line == line and start <= found.start and found.end <= end}
        if not covered:
            problems.append(f"claim {claim.claim} covers no number, or one that is covered already: {claim.place!r}")
        left -= covered
    for found in sorted(left, key=lambda found: (found.line, found.start)):
        around = texts[found.line][max(0, found.start - 40) : found.end + 25]
        problems.append(f"no claim covers {found.text} in line {found.line}: {around!r}")
    return problems


def main() -> int:
    """Print what is left; the exit status is 1 where anything is."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    ledger, excused = claims.load(), load_not_claims()
    problems = check(lines, ledger, excused)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(ledger)} claims, {len(excused)} excuses, {len(problems)} problems")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
