"""The ledger: claims against the published tables, and the four verdicts."""

import csv
import fnmatch
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import claims
from workflow.lib.claims import Claim
from workflow.lib.errors import BadInput
from workflow.lib.tables import render

F1 = Claim("table9.a.f1", "Table 9, a, F1", "0.7608", 4, "tables/table9.csv", "f1[model=A (B-1.5),split=x]")
REASONS = [{"claim": "table9.*", "study": "released", "reason": "rounded before subtraction"}]


def frame(value: object, study: str = "released") -> pd.DataFrame:
    return pd.DataFrame(
        {"study": [study] * 2, "model": ["A (B-1.5)", "C"], "split": ["x", "x"], "f1": [value, type(value)()]}
    )


@pytest.mark.parametrize(
    ("value", "verdict", "difference"),
    [
        (0.7608, "same", "0.0000"),
        (0.76084, "same", "0.00004"),
        (0.76085, "same", "0.00005"),
        (0.76075, "same", "-0.00005"),
        (0.760850001, "differs", "0.000050001"),
        (0.7607, "differs", "-0.0001"),
    ],
)
def test_same_means_that_a_correct_rounding_gives_the_printed_digits(value, verdict, difference):
    found = claims.verdict(F1, frame(value), "released", REASONS)
    assert (found.verdict, found.difference) == (verdict, difference)
    assert float(found.recomputed) == value
    assert found.reason == ("rounded before subtraction" if verdict == "differs" else "")


def test_counts_are_compared_as_integers():
    count = replace(F1, printed="1,356", decimals=0)
    assert claims.verdict(count, frame(1356), "released").verdict == "same"
    found = claims.verdict(count, frame(1357), "released")
    assert (found.verdict, found.difference, found.reason) == ("differs", "1", "")


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 6))
def test_every_correct_rounding_is_the_same(numerator, denominator, decimals):
    value = numerator / denominator
    printed = render.number(value, decimals)
    claim = replace(F1, printed=printed, decimals=decimals)
    assert claims.verdict(claim, frame(value), "released").verdict == "same"
    other = render.number(value + 1.1 * 10**-decimals, decimals)
    assert claims.verdict(replace(claim, printed=other), frame(value), "released").verdict == "differs"


def test_a_mini_number_is_never_compared():
    found = claims.verdict(F1, frame(0.7608, "mini"), "mini", REASONS)
    assert (found.verdict, found.recomputed, found.difference) == ("not in this study", "", "")
    assert "released and full" in found.reason
    with pytest.raises(BadInput, match="is of mini and not of released"):
        claims.verdict(F1, frame(0.7608, "mini"), "released")


@pytest.mark.parametrize(
    ("table", "key", "reason"),
    [
        (None, F1.key, "tables/table9.csv does not exist in study released"),
        (frame(0.5), "f1[model=B,split=x]", "0 rows have model B, split x in tables/table9.csv"),
        (frame(0.5), "f1[split=x]", "2 rows have split x"),
        (frame(0.5), "recall[split=x]", "there is no column recall"),
        (frame(0.5), "f1[readout=x]", "there is no column readout"),
        (frame(""), F1.key, "is an empty cell"),
        (frame("all yes"), F1.key, "holds no number"),
    ],
)
def test_what_cannot_be_recomputed_says_why(table, key, reason):
    found = claims.verdict(replace(F1, key=key), table, "released")
    assert (found.verdict, found.recomputed) == ("cannot be recomputed", "")
    assert reason in found.reason


FRACTION = replace(F1, printed="264/326", decimals=0, key="a[split=x]/b[split=x]")


@pytest.mark.parametrize(
    ("a", "b", "verdict", "recomputed", "difference"),
    [
        (264.0, 326, "same", "264/326", "0/0"),
        (263, 326, "differs", "263/326", "-1/0"),
        # the same ratio from other counts is another fraction
        (132, 163, "differs", "132/163", "-132/-163"),
        (1300, 1300, "differs", "1300/1300", "1036/974"),
    ],
)
def test_a_fraction_is_the_same_where_both_counts_are(a, b, verdict, recomputed, difference):
    found = claims.verdict(FRACTION, pd.DataFrame({"split": ["x"], "a": [a], "b": [b]}), "released")
    assert (found.verdict, found.recomputed, found.difference) == (verdict, recomputed, difference)


def test_a_tiny_value_is_not_the_same_as_another():
    claim = replace(F1, printed="4.83 × 10^-68", decimals=2)
    assert claims.verdict(claim, frame(4.8251e-68), "released").verdict == "same"
    assert claims.verdict(claim, frame(4.8249e-68), "released").verdict == "differs"
    assert claims.verdict(claim, frame(0.0), "released").verdict == "differs"


def test_only_the_studies_that_can_settle_a_claim_are_compared():
    full = replace(F1, settled_by=("full",))
    found = claims.verdict(full, frame(0.7608), "released", REASONS)
    assert (found.verdict, found.recomputed) == ("not in this study", "")
    assert found.reason == "the full study has it; rounded before subtraction"
    assert claims.verdict(full, frame(0.7608, "full"), "full").verdict == "same"
    assert claims.tables_needed([full], "released") == []
    assert claims.tables_needed([full], "full") == [F1.file]
    assert claims.tables_needed([F1], "mini") == []


def test_what_no_study_can_settle_says_why():
    never = replace(F1, printed="4.40.1", decimals=0, file="", key="", settled_by=())
    reasons = [{"claim": "table9.*", "study": "any", "reason": "a version"}]
    for study in claims.PAPER_STUDIES:
        found = claims.verdict(never, None, study, reasons)
        assert (found.verdict, found.reason) == ("cannot be recomputed", "a version")
    assert claims.verdict(never, None, "mini", reasons).verdict == "not in this study"
    assert claims.tables_needed([never], "released") == []
    assert claims.check([never], {}, "released", reasons)["settled_by"].tolist() == ["none"]


@pytest.mark.parametrize(
    ("key", "column", "row"),
    [
        ("f1[split=x]", "f1", {"split": "x"}),
        ("f1[model=A (B-1.5),split=x]", "f1", {"model": "A (B-1.5)", "split": "x"}),
    ],
)
def test_keys_name_a_column_and_a_row(key, column, row):
    assert claims.parse_key(key) == (column, row)


@pytest.mark.parametrize(
    "key",
    [
        "f1",
        "f1[]",
        "f1[split]",
        "f1[split=]",
        "f1[=x]",
        "f1[split=x,]",
        "f1[split=x]]",
        "f1[s=x,s=y]",
        "[s=x]",
    ],
)
def test_a_malformed_key_is_refused(key):
    with pytest.raises(BadInput, match="not of the form"):
        claims.parse_key(key)


def test_look_up_compares_values_as_text():
    table = pd.DataFrame({"token_id": [3869, 1939], "typo": [True, False], "count": [5, 6]})
    assert claims.look_up(table, "count[token_id=1939]") == 6
    assert claims.look_up(table, "count[typo=True]") == 5


def ledger_file(folder: Path, *rows: list[str]) -> Path:
    path = folder / "claims.csv"
    with open(path, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([claims.COLUMNS, *rows])
    return path


GOOD = ["table9.a.f1", "Table 9", "0.7608", "4", "tables/table9.csv", "f1[split=x]", "released full"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "Table9 a", "line 3: claim 'Table9 a' must be"),
        (0, "table9.a.f1", "line 3: claim 'table9.a.f1' must be a dotted lower-case name that occurs once"),
        (1, "", "place is empty"),
        (2, "76 %", "printed '76 %' is no number"),
        (2, "1,35", "printed '1,35' is no number"),
        (3, "3", "has 4 decimals where '3' is stated"),
        (4, "/abs/table.csv", "must be a .csv below the results folder"),
        (4, "../table.csv", "must be a .csv below the results folder"),
        (5, "f1", "line 3: key 'f1' is not of the form"),
        (5, "a[s=x]/b[s=x]", "0.7608 needs 1 cells where key"),
        (6, "", "settled_by '' must be none or some of released full"),
        (6, "mini", "settled_by 'mini' must be none or some of released full"),
    ],
)
def test_a_faulty_claim_is_named(place, value, message, tmp_path):
    row = ["table9.b.f1", *GOOD[1:]]
    row[place] = value
    with pytest.raises(BadInput, match=message):
        claims.load(ledger_file(tmp_path, GOOD, row))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({2: "4.40.1", 3: "0"}, "'4.40.1' has no value, so settled_by must be none"),
        ({2: "264/326", 3: "0"}, "264/326 needs 2 cells"),
        ({4: "", 5: ""}, "must be a .csv below the results folder"),
        ({5: "", 6: "none"}, "key '' is not of the form"),
    ],
)
def test_a_claim_must_fit_its_printed_form(changed, message, tmp_path):
    row = [changed.get(place, cell) for place, cell in enumerate(GOOD)]
    with pytest.raises(BadInput, match=message):
        claims.load(ledger_file(tmp_path, row))


def test_a_claim_that_nothing_settles_may_name_no_cell(tmp_path):
    rows = [
        ["a.never", "Section 1", "4.40.1", "0", "", "", "none"],
        ["a.transcribed", *GOOD[1:6], "none"],
        ["a.full", *GOOD[1:6], "full"],
    ]
    assert [claim.settled_by for claim in claims.load(ledger_file(tmp_path, *rows))] == [(), (), ("full",)]


def test_a_claim_with_too_few_cells_is_named(tmp_path):
    with pytest.raises(BadInput, match="line 2 has not 7 cells"):
        claims.load(ledger_file(tmp_path, GOOD[:-1]))


def test_claims_and_published_tables_agree_cell_by_cell(repository):
    """Every printed number of the five tables is one claim, and no other claim is placed in them."""
    keys = {
        "table1": ("split",),
        "table2": ("split", "protocol"),
        "table4": ("model", "split"),
        "table7": ("split", "label"),
        "table13": ("split",),
    }
    named = (claim.claim.split(".") for claim in claims.load())
    assert Counter(name for name, part, *_ in named if name in keys and part != "header") == {
        "table1": 16,
        "table2": 27,
        "table4": 60,
        "table7": 42,
        "table13": 12,
    }
    by_cell = {}
    for claim in claims.load():
        name, part, *_ = claim.claim.split(".")
        if name in keys and part != "header":
            column, row = claims.parse_key(claim.key)
            by_cell[claim.file, column, tuple(sorted(row.items()))] = claim.printed
    cells = {}
    for name, selecting in keys.items():
        with open(repository / f"workflow/published/{name}.csv", encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                selected = tuple(sorted((key, row[key]) for key in selecting))
                for column, printed in row.items():
                    if column not in (*selecting, "study", "rate") and printed:
                        cells[f"tables/{name}.csv", column, selected] = printed
    assert by_cell == cells


def test_every_reason_belongs_to_a_claim():
    names = [claim.claim for claim in claims.load()]
    for row in claims.load_reasons():
        assert fnmatch.filter(names, row["claim"]), row["claim"]


def test_every_claim_that_nothing_settles_has_a_reason():
    never = [claim for claim in claims.load() if not claim.settled_by]
    ledger = claims.check(never, {}, "full", claims.load_reasons())
    assert len(never) == 60 and (ledger["reason"] != "no study can recompute it").all()


def test_a_reason_for_an_unknown_study_is_refused(tmp_path):
    path = tmp_path / "reasons.csv"
    path.write_text("claim,study,reason\ntable1.*,mini,because\n")
    with pytest.raises(BadInput, match="needs a study"):
        claims.load_reasons(path)


def test_the_ledger_of_the_mini_study_compares_nothing():
    ledger = claims.check(claims.load(), {}, "mini", claims.load_reasons())
    assert set(ledger["verdict"]) == {"not in this study"}
    assert set(ledger["recomputed"]) == {""} and set(ledger["counts"]) == {""}
    assert ledger.columns.tolist() == list(claims.RESULT)
    assert claims.tally(ledger, "mini") == (
        "771 claims in study mini: 0 same, 0 differs, 771 not in this study, 0 cannot be recomputed\n"
        "  not in this study: 771 (mini has numbers of its own; the paper's belong to released and full)"
    )


def test_reasons_state_what_the_printed_table_8_contradicts():
    """The harmonic means and ranges that reasons name follow from the printed cells."""
    printed = {claim.claim: claim.value for claim in claims.load() if claim.claim.startswith("table8.")}
    reasons = [row for row in claims.load_reasons() if "harmonic mean" in row["reason"]]
    methods = {name.split(".")[1] for name in printed}
    assert len(reasons) == 6
    for method in methods:
        f1, precision, recall = (float(printed[f"table8.{method}.{name}"]) for name in ("f1", "precision", "recall"))
        # of all precisions and recalls that are printed like this, the harmonic mean moves by less than 1e-4
        unlike = abs(f1 - 2 * precision * recall / (precision + recall)) > 1.5e-4
        named = [row["reason"] for row in reasons if row["claim"] == f"table8.{method}.f1"]
        assert bool(named) == unlike, method
        if named:
            assert f"{2 * precision * recall / (precision + recall):.4f}" in named[0]
    tried = methods - {"baseline"}
    gains = [printed[f"table8.{name}.precision"] - printed["table8.baseline.precision"] for name in tried]
    costs = [printed["table8.baseline.recall"] - printed[f"table8.{name}.recall"] for name in tried]
    assert (float(min(gains)), float(max(gains))) == (0.0305, 0.0620)
    assert (float(min(costs)), float(max(costs))) == (0.0360, 0.0634)


def test_printed_rows_invert_to_the_counts_of_the_real_records(released_frames):
    ledger = claims.check(claims.load(), released_frames, "released").set_index("claim")
    rows = "adversarial.two_token", "adversarial.eight_token"
    assert [ledger.loc[f"table2.{row}.f1", "counts"] for row in rows] == [
        "same: tp 1438 fp 842 fn 62 tn 658",
        "same: tp 1174 fp 182 fn 326 tn 1318",
    ]
    compared = ledger[ledger["counts"] != ""]
    assert len(compared) == 18 and compared["counts"].str.startswith("same: ").all()


def test_counts_that_differ_are_named_though_the_rounded_value_may_agree(released_frames):
    table = released_frames["tables/table2.csv"].copy()
    row = (table["split"] == "random") & (table["protocol"] == "Eight-token")
    # one more false positive than the paper's 43
    table.loc[row, ["f1", "precision"]] = [2 * 1191 / 2735, 1191 / 1235]
    frames = dict(released_frames) | {"tables/table2.csv": table}
    ledger = claims.check(claims.load(), frames, "released").set_index("claim")
    assert ledger.loc["table2.random.eight_token.recall", "verdict"] == "same"
    assert ledger.loc["table2.random.eight_token.recall", "counts"] == (
        "differs: printed tp 1191 fp 43 fn 309 tn 1457; recomputed tp 1191 fp 44 fn 309 tn 1456"
    )


def test_a_study_without_a_table_says_so(released_frames):
    frames = {name: table for name, table in released_frames.items() if name != "tables/table13.csv"}
    ledger = claims.check(claims.load(), frames, "released", claims.load_reasons())
    missing = ledger[ledger["reason"].str.startswith("tables/table13.csv does not exist in study released")]
    assert set(missing["verdict"]) == {"cannot be recomputed"}
    assert set(missing["claim"]) == {claim.claim for claim in claims.load() if claim.file == "tables/table13.csv"}
    assert len(missing) > 12


def test_one_claim_as_json():
    judged = claims.check([F1], {F1.file: frame(0.7607)}, "released", REASONS).iloc[0]
    found = json.loads(json.dumps(claims.as_json(judged)))
    assert (found["recomputed"], found["difference"], found["printed"]) == (0.7607, -0.0001, "0.7608")
    fraction = claims.check([FRACTION], {F1.file: pd.DataFrame({"split": ["x"], "a": [264], "b": [326]})}, "released")
    assert claims.as_json(fraction.iloc[0])["recomputed"] == "264/326"
    unread = claims.as_json(claims.check([F1], {}, "mini").iloc[0])
    assert unread["recomputed"] is None and unread["difference"] is None


def test_tables_are_found_by_the_end_of_their_path(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/table9.csv").write_text("study,f1\nreleased,0.5\n")
    found = claims.read_tables([F1], [str(tmp_path / "tables/table9.csv")])
    assert list(found) == ["tables/table9.csv"]
