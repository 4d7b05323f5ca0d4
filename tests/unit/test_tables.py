"""Tables: rounding, layout and the three printed forms."""

import csv
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib.errors import BadInput
from workflow.lib.tables import render, table1, table2, table4, table7, table13

NOTE = "This study tests rules and code."


@pytest.mark.parametrize(
    ("value", "decimals", "signed", "printed"),
    [
        (0.76081, 4, False, "0.7608"),
        (0.76, 3, False, "0.760"),
        (0.0613, 4, True, "+0.0613"),
        (-0.0613, 4, True, "-0.0613"),
        (0.0, 4, True, "+0.0000"),
        (-0.00001, 4, True, "+0.0000"),
        (-0.00001, 4, False, "0.0000"),
        (1356, 0, False, "1,356"),
        (0, 0, False, "0"),
        (1234567.5, 1, False, "1,234,567.5"),
        (0.00005, 4, False, "0.0001"),
        (-0.00005, 4, False, "-0.0001"),
        (0.5, 0, False, "1"),
        (1.5, 0, False, "2"),
        (2.5, 0, False, "3"),
        (0.00015, 4, False, "0.0002"),
        (2.675, 2, False, "2.68"),
        ("", 4, True, ""),
    ],
)
def test_numbers_by_hand(value, decimals, signed, printed):
    assert render.number(value, decimals, signed) == printed


def test_a_word_is_no_number():
    with pytest.raises(ValueError, match="'unknown' is no number"):
        render.number("unknown", 2)


@given(st.floats(-1e6, 1e6, allow_nan=False), st.integers(0, 6))
def test_rounding_takes_the_nearest_and_halves_go_away_from_zero(value, decimals):
    unit = Decimal(1).scaleb(-decimals)
    exact = Decimal(repr(value))
    printed = Decimal(render.number(value, decimals).replace(",", ""))
    assert printed in (exact.quantize(unit, ROUND_FLOOR), exact.quantize(unit, ROUND_CEILING))
    assert abs(printed - exact) <= unit / 2
    if abs(printed - exact) == unit / 2:
        assert abs(printed) > abs(exact)


def confusion(**models: str) -> pd.DataFrame:
    """A small statistics/confusion.csv: F1 of a row encodes split and readout."""
    rows = []
    readouts = ["legacy_2tok", "legacy_8tok", "dynamic_single", "string_parse", "string_parse_returned"]
    for model, basis in models.items():
        for number, split in enumerate(("random", "adversarial", "popular")):
            for place, readout in enumerate(readouts):
                rows.append(
                    {
                        "study": "mini",
                        "model": model,
                        "split": split,
                        "readout": readout,
                        "basis": basis,
                        "uncovered": "",
                    }
                    | {
                        "tp": 1000 + number,
                        "fp": place,
                        "fn": 7,
                        "tn": 1999,
                        "precision": 0.5,
                        "recall": 0.25,
                    }
                    | {"f1": number / 10 + place / 1000, "yes_rate": 0.7605}
                )
    return pd.DataFrame(rows)


def test_table2_layout():
    table = table2.build(confusion(llava15="logits"), "llava15", NOTE)
    assert table.frame.columns.tolist() == [
        *("study", "split", "protocol", "f1", "precision", "recall", "yes_rate", "delta", "delta_exact")
    ]
    assert table.printed()[:3] == [
        ["Adversarial", "Two-token", "0.1000", "0.5000", "0.2500", "0.761", "+0.0010"],
        ["", "Eight-token", "0.1010", "0.5000", "0.2500", "0.761", ""],
        ["Popular", "Two-token", "0.2000", "0.5000", "0.2500", "0.761", "+0.0010"],
    ]
    assert table.frame["delta"].tolist()[1::2] == ["", "", ""]


def test_table4_takes_the_named_string_parse_and_marks_published_metrics():
    frame = confusion(llava15="logits", instructblip="published metrics")
    display = {"llava15": "First (A)", "instructblip": "Second (B)"}
    parse = {"llava15": "string_parse", "instructblip": "string_parse_returned"}
    table = table4.build(frame, display, parse)
    assert table.printed() == [
        ["First (A)", "adversarial", "0.1000", "0.1010", "0.1020", "0.1030"],
        ["First (A)", "popular", "0.2000", "0.2010", "0.2020", "0.2030"],
        ["First (A)", "random", "0.0000", "0.0010", "0.0020", "0.0030"],
        ["Second (B) †", "adversarial", "0.1000", "0.1010", "0.1020", "0.1040"],
        ["Second (B) †", "popular", "0.2000", "0.2010", "0.2020", "0.2040"],
        ["Second (B) †", "random", "0.0000", "0.0010", "0.0020", "0.0040"],
    ]
    assert table.frame["model"].tolist() == ["First (A)"] * 3 + ["Second (B)"] * 3
    assert [note[0] for note in table.notes] == ["†"]
    assert table4.build(confusion(llava15="logits"), display, parse).notes == []


def test_table4_names_a_readout_that_is_missing():
    frame = confusion(llava15="logits")
    frame = frame[(frame["readout"] != "dynamic_single") | (frame["split"] != "popular")]
    with pytest.raises(BadInput, match="model llava15, split popular, readout dynamic_single"):
        table4.build(frame, {"llava15": "A"}, {"llava15": "string_parse"})


def test_table13_layout():
    table = table13.build(confusion(llava15="logits", other="logits"), "llava15")
    assert table.printed() == [
        ["Adversarial", "1,001", "1,999", "1", "7"],
        ["Popular", "1,002", "1,999", "1", "7"],
        ["Random", "1,000", "1,999", "1", "7"],
    ]


def first_tokens() -> pd.DataFrame:
    counts = {3869: 1000, 1939: 200, 3582: 0, 1217: 0, 5: 3}
    return pd.DataFrame(
        [
            {
                "study": "mini",
                "model": "llava15",
                "split": split,
                "token_id": token,
                "text": "",
                "count": count,
            }
            for split in ("adversarial", "random")
            for token, count in counts.items()
        ]
    )


def test_table1_adds_up_and_capitalises_only_in_print():
    table = table1.build(first_tokens(), "llava15")
    assert table.printed() == [
        ["Adversarial", "1,000", "200", "0", "0"],
        ["Random", "1,000", "200", "0", "0"],
        ["Total", "2,000", "400", "0", "0"],
    ]
    assert table.frame["split"].tolist() == ["adversarial", "random", "total"]


def test_table1_names_an_id_that_was_not_declared():
    frame = first_tokens()
    with pytest.raises(BadInput, match="no row of token 3582 for model llava15, split adversarial"):
        table1.build(frame[frame["token_id"] != 3582], "llava15")


def transitions() -> pd.DataFrame:
    shared = {"study": "mini", "model": "llava15", "reference": "legacy_8tok", "tested": "legacy_2tok"}
    counts = {"yes_yes": 1174, "yes_no": 0, "no_yes": 264, "no_no": 62}
    rates = {"no": ("rho_N", 660, 1318, 660 / 1318), "yes": ("phi", 264, 326, 264 / 326)}
    rows = []
    for label, (rate, numerator, denominator, value) in rates.items():
        row = {"split": "adversarial", "label": label, "rate": rate, "numerator": numerator}
        rows.append(shared | counts | row | {"denominator": denominator, "value": value})
    return pd.DataFrame(rows)


def test_table7_prints_fractions_with_their_value():
    table = table7.build(transitions(), "llava15")
    assert table.printed() == [
        ["Adversarial", "yes", "1,174", "0", "264", "62", "φ", "264/326 = 0.810"],
        ["Adversarial", "no", "1,174", "0", "264", "62", "ρ_N", "660/1,318 = 0.501"],
    ]
    assert r"$\rho_N$ & 660/1,318 = 0.501 \\" in table.latex()
    assert r"8y$\to$2y" in table.latex()


@pytest.mark.parametrize(
    ("build", "frame"),
    [
        (table1.build, first_tokens()),
        (table2.build, confusion(llava15="logits")),
        (table7.build, transitions()),
    ],
)
def test_a_model_without_rows_is_named(build, frame):
    with pytest.raises(BadInput, match=r"no rows of model 'absent' \(it has llava15\)"):
        build(frame, "absent")


def test_two_studies_in_one_table_are_refused():
    frame = confusion(llava15="logits")
    frame.loc[0, "study"] = "released"
    with pytest.raises(BadInput, match=r"2 studies \(mini, released\)"):
        table2.build(frame, "llava15")


def test_markdown_and_latex_name_the_study_and_carry_the_note(tmp_path):
    table = table2.build(confusion(llava15="logits"), "llava15", NOTE)
    table.save(tmp_path / "t.csv", tmp_path / "t.md", tmp_path / "t.tex")
    markdown = (tmp_path / "t.md").read_text(encoding="utf-8")
    latex = (tmp_path / "t.tex").read_text(encoding="utf-8")
    for text in (markdown, latex):
        assert "Study: mini." in text
        assert NOTE in text.rpartition("0.761")[2]
    assert markdown.splitlines()[3] == "| :--- | :--- | ---: | ---: | ---: | ---: | ---: |"
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{", r"\begin{tabular}{llrrrrr}"):
        assert latex.count(command) == 1
    assert "Δ" not in latex and r"$\Delta$" in latex


def test_the_csv_keeps_full_precision(tmp_path):
    frame = confusion(llava15="logits")
    frame["f1"] = 2 / 3
    table2.build(frame, "llava15").save(tmp_path / "t.csv", tmp_path / "t.md", tmp_path / "t.tex")
    with open(tmp_path / "t.csv", encoding="utf-8", newline="") as stream:
        assert {float(row["f1"]) for row in csv.DictReader(stream)} == {2 / 3}


def test_latex_escapes_what_latex_would_read():
    table = table4.build(confusion(llava15="logits"), {"llava15": "50% of A_b & C"}, {"llava15": "string_parse"})
    assert r"50\% of A\_b \& C & adversarial" in table.latex()
    assert r"legacy\_2tok" in table.latex()
    assert r"legacy\_2tok" in table.markdown()


# ---- the paper's printed tables ----


@pytest.mark.parametrize("number", [1, 2, 4, 7, 13])
def test_real_records_give_every_printed_cell(number, released_tables, repository):
    table = released_tables[f"tables/table{number}.csv"]
    with open(repository / f"workflow/published/table{number}.csv", encoding="utf-8", newline="") as stream:
        published = list(csv.DictReader(stream))
    assert list(published[0]) == [name for name in table.frame.columns if name != "delta_exact"]
    for row, expected in zip(table.frame.to_dict("records"), published, strict=True):
        for name, cell in expected.items():
            if name != "study":
                assert (name, at_printed_decimals(name, row[name])) == (name, cell)


def at_printed_decimals(name: str, value: object) -> str:
    """One cell of the CSV at the decimals that the paper prints."""
    if isinstance(value, str):
        return value
    if name == "delta":
        return render.number(value, 4, signed=True)
    places = 0 if isinstance(value, int) else {"yes_rate": 3, "value": 3}.get(name, 4)
    return render.number(value, places)


def test_delta_subtracts_printed_values_and_its_exact_value_stands_beside_it(released_tables):
    table = released_tables["tables/table2.csv"]
    row = table.frame[table.frame["split"] == "random"].index[0]
    assert table.printed()[row][-1] == "+0.0316" and table.frame["delta"][row] == 0.0316
    assert table.frame["delta_exact"][row] == pytest.approx(2382 / 2734 - 2882 / 3432, abs=1e-15)
    assert render.number(table.frame["delta_exact"][row], 4) == "0.0315"


def test_the_printed_layout_of_table7_is_the_papers(released_tables):
    assert released_tables["tables/table7.csv"].printed()[1] == [
        *("Adversarial", "no", "182", "0", "660", "658", "ρ_N", "660/1,318 = 0.501")
    ]


def test_sixty_cells_of_f1(released_tables, repository: Path):
    frame = pd.read_csv(repository / "workflow/published/table4.csv", dtype=str)
    built = [row[2:] for row in released_tables["tables/table4.csv"].printed()]
    assert frame[list(table4.READOUTS)].values.tolist() == built
    assert sum(map(len, built)) == 60
