"""Numbers of a text that no claim covers, and the first paper's own text."""

from dataclasses import replace

import pytest

from checks import uncovered_numbers
from workflow.lib import claims
from workflow.lib.claims import Claim

TEXT = [
    "The rate is $0.760$ in 3 of 9,000 cases, see Table 1.",
    "p = $2.05 \\times10^{-7}$; $\\rho_N=660/1{,}318$ and all nine",
    "Split\tYes",
    "Random\t1,234",
    "Total\t1,234",
]
CLAIMS = [
    ("a.rate", "Section 1: is …", "0.760", "x[s=x]"),
    ("a.three", "Section 1: in … of", "3", "x[s=x]"),
    ("a.cases", "Section 1: of … cases", "9,000", "x[s=x]"),
    ("a.p", "Section 1: p = …;", "2.05 × 10^-7", "x[s=x]"),
    ("a.fraction", "Section 1: ρ_N=…", "660/1,318", "x[s=x]/y[s=x]"),
    ("a.nine", "Section 1: all …", "nine", "x[s=x]"),
    ("table1.random", "Table 1, Random, Yes", "1,234", "x[s=x]"),
    ("table1.total", "Table 1, Total, Yes", "1,234", "x[s=x]"),
]
LEDGER = [Claim(name, place, printed, 0, "tables/table1.csv", key) for name, place, printed, key in CLAIMS]
EXCUSED = [{"number": "1", "context": "Table 1", "reason": "number of a table"}]


def uncovered(text=TEXT, ledger=LEDGER, excused=EXCUSED) -> list[str]:
    problems = uncovered_numbers.check(text, ledger, excused)
    return [problem for problem in problems if "tables where" not in problem]


def test_a_covered_text_has_no_problem():
    assert uncovered() == []
    assert "has 1 tables where 13 are known" in uncovered_numbers.check(TEXT, LEDGER, EXCUSED)[0]


@pytest.mark.parametrize("left_out", range(len(LEDGER)))
def test_a_number_without_a_claim_is_found(left_out):
    (problem, *others) = uncovered(ledger=[claim for place, claim in enumerate(LEDGER) if place != left_out])
    numbers = LEDGER[left_out].printed.split("/")
    assert problem.startswith(f"no claim covers {numbers[0]} in line") and len(others) == len(numbers) - 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"place": "Section 1: was …"}, "claim a.rate stands at 0 places"),
        ({"printed": "0.761"}, "claim a.rate stands at 0 places"),
        ({"place": "Section 1: …"}, ""),
        ({"place": "Section 1: in … of", "printed": "3"}, "claim a.three covers no number, or one that is covered"),
        ({"place": "Table 1, x", "printed": "7"}, "Table 1 does not print 7 that often: 1 too many"),
    ],
)
def test_a_claim_that_covers_nothing_is_found(changed, message):
    found = uncovered(ledger=[replace(LEDGER[0], **changed), *LEDGER[1:]])
    assert any(problem.startswith(message) for problem in found) if message else not found


def test_a_place_must_be_one_place():
    twice = [*TEXT[:2], "It is 0.760.", *TEXT[2:]]
    assert "claim a.rate stands at 2 places: 'Section 1: is …'" in uncovered(twice)


def test_an_excuse_must_be_used():
    unused = [*EXCUSED, {"number": "2", "context": "Table 2", "reason": "number of a table"}]
    assert uncovered(excused=unused) == ["no number needs the excuse 'Table 2'"]
    assert uncovered(excused=[])[0].startswith("no claim covers 1 in line 1")


@pytest.fixture(scope="module")
def paper(shared_data) -> list[str]:
    """Lines of the first paper's text."""
    path = shared_data.parent / "papers/pope_audit.txt"
    if not path.is_file():
        pytest.skip(f"the paper's text is not at {path}")
    return path.read_text(encoding="utf-8").splitlines()


def test_every_number_of_the_paper_is_a_claim_or_excused(paper):
    assert uncovered_numbers.check(paper, claims.load(), uncovered_numbers.load_not_claims()) == []
