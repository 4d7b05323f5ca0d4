"""Tables 3, 5, 6, 10, 11 and 12, the survey, the equations, and the digests of their rules."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.lib import answers, equations, files, forms, metrics, provenance, records, survey, templates
from workflow.lib.errors import BadInput
from workflow.lib.tables import table3, table5, table6, table10, table11, table12

NOTE = "This study tests rules and code."
HEADER = ",".join(survey.COLUMNS)


# --- the survey


def survey_file(folder: Path, *lines: str) -> Path:
    path = folder / "survey.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return path


def test_gains_are_exact_differences():
    surveyed = survey.load()
    assert surveyed["gain"].tolist() == [10.81, 10.56, 8.01, 0.70, 0.80, 1.60, 5.76, 0.96]
    assert survey.disagreeing(surveyed) == []


def test_ranges_and_spreads_of_the_survey():
    found = survey.statistics(survey.load(), 0.0613, "released").set_index("quantity")["value"].to_dict()
    assert found == {
        "gain_min": 0.70,
        "gain_max": 10.81,
        "baseline_min": 73.54,
        "baseline_max": 82.07,
        "baseline_spread": 8.53,
        "baseline_spread_named": 7.46,
        "readout_gap": pytest.approx(6.13),
        "papers_below_readout_gap": 5,
        "papers_stating_readout": 0,
    }


@pytest.mark.parametrize(("gap", "papers"), [(-0.02, 0), (0.007, 0), (0.0081, 2), (0.5, 6)])
def test_papers_below_the_gap_of_any_study(gap, papers):
    found = survey.statistics(survey.load(), gap, "mini").set_index("quantity")
    assert found.loc["papers_below_readout_gap", "value"] == papers
    assert found.loc["papers_below_readout_gap", "of"] == 6
    assert found.loc["baseline_spread_named", "of"] == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["A,[1],,adversarial,70.1,71.00,+0.90,not stated,x"], "line 2: baseline '70.1' is not printed with two"),
        (["A,[1],,adversarial,70.10,71.00,+0.90,not stated,x"] * 2, "has A twice on split adversarial"),
        (["A,[1],,popular,70.10,71.00,+0.90,not stated,x"], "no row of split adversarial"),
    ],
)
def test_a_broken_survey_is_refused(tmp_path, lines, message):
    with pytest.raises(BadInput, match=message):
        survey.statistics(survey.load(survey_file(tmp_path, *lines)), 0.06, "mini")


def test_another_header_is_refused(tmp_path):
    path = tmp_path / "survey.csv"
    path.write_text("paper,gain\nA,1\n", encoding="utf-8")
    with pytest.raises(BadInput, match="has columns paper, gain"):
        survey.load(path)


def test_a_reported_gain_that_is_no_difference_is_named(tmp_path):
    surveyed = survey.load(survey_file(tmp_path, "A,[1],,adversarial,70.00,71.00,+0.50,not stated,x"))
    table = table3.build(surveyed, "mini", NOTE)
    assert "Another gain than the difference is reported by A." in table.markdown()
    assert table.printed() == [["A [1] (adv.)", "70.00", "71.00", "+1.00", "not stated"]]


def test_both_survey_tables_print_the_same_rows():
    three, twelve = (module.build(survey.load(), "released") for module in (table3, table12))
    assert three.printed() == twelve.printed()
    assert three.printed()[0] == ["Tang et al. [15] (adv.)", "73.54", "84.35", "+10.81", "not stated"]
    assert three.printed()[2][0] == "Tang et al. [15] (rand.)"
    assert (three.label, twelve.label) == ("Table 3", "Table 12")
    assert "Study: released." in twelve.latex()


def test_the_readout_gap_needs_its_split():
    rows = pd.DataFrame({"model": ["m"], "split": ["popular"], "gap": [0.1]})
    with pytest.raises(BadInput, match="0 rows of model m, split adversarial"):
        survey.readout_gap(rows, "m")
    assert survey.readout_gap(rows.assign(split="adversarial"), "m") == 0.1


# --- the equations


CELLS = ("yes_yes", "yes_no", "no_yes", "no_no")
RELEASED = {
    "adversarial": ((1174, 0, 264, 62), (182, 0, 660, 658)),
    "popular": ((1191, 0, 250, 59), (112, 0, 567, 821)),
    "random": ((1191, 0, 250, 59), (43, 0, 448, 1009)),
}


def transitions(splits: dict) -> pd.DataFrame:
    rows = []
    for split, labels in splits.items():
        for label, counts in zip(("yes", "no"), labels, strict=True):
            counted = dict(zip(CELLS, counts, strict=True)) | {"unknown": 0}
            rows.append({"study": "released", "model": "m", "split": split, "label": label} | counted)
    return pd.DataFrame(rows)


def values(frame: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    return frame.set_index(["split", "equation", "quantity"])["value"].to_dict()


def test_equations_give_the_papers_numbers():
    found = values(equations.evaluate(transitions(RELEASED)))
    assert [found["adversarial", "2", cell] for cell in ("tp", "fp", "fn", "tn")] == [1174, 182, 326, 1318]
    assert [found["adversarial", "3", cell] for cell in ("tp", "fp", "fn", "tn")] == [1438, 842, 62, 658]
    assert (found["adversarial", "4", "flips_to_fp"], found["adversarial", "4", "flips_to_tp"]) == (660, 264)
    assert found["adversarial", "1", "gap"] == pytest.approx(0.0613, abs=5e-5)
    assert found["adversarial", "1", "gap"] == found["adversarial", "1", "gap_counted"]
    assert (found["adversarial", "bound", "numerator"], found["adversarial", "bound", "denominator"]) == (2348, 3516)
    assert found["adversarial", "bound", "f1_tested"] == pytest.approx(0.6678, abs=5e-5)
    assert found["popular", "5", "f1_tested"] == pytest.approx(2882 / 3620, abs=1e-15)
    assert found["random", "5", "f1_tested"] == pytest.approx(2882 / 3432, abs=1e-15)
    assert found["popular", "transplanted", "f1_tested"] == pytest.approx(0.7690, abs=5e-5)
    assert found["random", "transplanted", "f1_tested"] == pytest.approx(0.7761, abs=5e-5)
    assert found["popular", "pooled", "flip_rate"] == pytest.approx(817 / 1697)
    assert ("popular", "4", "f1_tested") not in found and ("adversarial", "5", "f1_tested") not in found


count = st.integers(0, 50)


@given(st.tuples(count, count, count), st.tuples(count, count, count))
def test_where_no_yes_is_lost_the_equations_are_the_counts(yes, no):
    rows = transitions({"adversarial": ((yes[0], 0, *yes[1:]), (no[0], 0, *no[1:]))})
    found = values(equations.evaluate(rows))
    counted = metrics.Confusion(tp=yes[0] + yes[1], fn=yes[2], fp=no[0] + no[1], tn=no[2])
    assert [found["adversarial", "3", cell] for cell in ("tp", "fp", "fn", "tn")] == [
        counted.tp,
        counted.fp,
        counted.fn,
        counted.tn,
    ]
    assert found["adversarial", "1", "f1_tested"] == counted.f1
    assert found["adversarial", "1", "condition_holds"] == 1
    assert found["adversarial", "bound", "f1_tested"] <= found["adversarial", "1", "f1_tested"]


def test_a_lost_yes_is_said():
    found = values(equations.evaluate(transitions({"adversarial": ((3, 1, 0, 0), (0, 0, 1, 1))})))
    assert found["adversarial", "1", "condition_holds"] == 0
    assert found["adversarial", "1", "gap"] != found["adversarial", "1", "gap_counted"]


def test_incomplete_transitions_are_refused():
    rows = transitions(RELEASED)
    with pytest.raises(BadInput, match="labels yes of model m, split adversarial"):
        equations.evaluate(rows.iloc[[0]])
    with pytest.raises(BadInput, match="split adversarial, label yes twice"):
        equations.evaluate(rows.iloc[[0, 0, 1]])
    with pytest.raises(BadInput, match="holds 2 studies"):
        equations.evaluate(pd.concat([rows, rows.assign(study="mini", split="random")]))


# --- forms of a tokenizer


def form_rows(*more: tuple) -> pd.DataFrame:
    words = {"yes": 4874, "Yes": 3869, "no": 694, "No": 1939}
    rows = []
    for form in forms.YES_FORMS + forms.NO_FORMS:
        ids = [words[form]] if form in words else [29871, words[form.strip()]]
        single = len(ids) == 1
        rows.append(("mini", "llava15", form, json.dumps(ids), single, single, "", "", 0))
    return pd.DataFrame([*rows, *more], columns=list(forms.COLUMNS))


def declared(emitted: dict[int, int]) -> list[tuple]:
    return [
        (
            *("mini", "llava15", "", f"[{token}]", True, False),
            *("▁" + form.strip() if form.startswith(" ") else form, form.strip(), emitted.get(token, 0)),
        )
        for token, form in forms.SURFACES.items()
    ]


def written(frame: pd.DataFrame, folder: Path) -> Path:
    files.write_csv(frame, folder / "forms.csv")
    return folder / "forms.csv"


def test_table5_prints_what_the_ids_are(tmp_path):
    encoded = forms.load(written(form_rows(*declared({3869: 6, 1939: 4})), tmp_path))
    table = table5.build(encoded, "llava15", NOTE)
    assert table.printed() == [
        ["yes", "3582", "yes"],
        ["yes", "8241", "Yes"],
        ["yes", "4874", "‘ yes’"],
        ["yes", "3869*", "‘ Yes’"],
        ["no", "1217", "no"],
        ["no", "3782", "No"],
        ["no", "694", "‘ no’"],
        ["no", "1939*", "‘ No’"],
    ]
    assert table.frame["decoded"].tolist()[3] == "Yes"
    assert table.frame["count"].tolist() == [0, 0, 0, 6, 0, 0, 0, 4]


def test_table5_needs_every_id(tmp_path):
    encoded = forms.load(written(form_rows(*declared({})[1:]), tmp_path))
    with pytest.raises(BadInput, match=r"tokens/llava15.csv does not say what id 3582 is"):
        table5.build(encoded, "llava15")


def test_table10_prints_tokenisation_and_membership(tmp_path):
    table = table10.build(forms.load(written(form_rows(), tmp_path)), "llava15", "the model", NOTE)
    assert table.printed()[1] == ["Yes", "[3869]", "yes (single-token)"]
    assert table.printed()[3] == ["‘ Yes’", "[29871, 3869]", "no (multi-token)"]
    assert table.frame.set_index("row").loc["spaced_no", ["tokens", "id"]].tolist() == [2, 694]
    with pytest.raises(BadInput, match="no row of form ' no'"):
        frame = form_rows()
        table10.build(forms.load(written(frame[frame["form"] != " no"], tmp_path)), "llava15", "the model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="piece"), "has no column 'piece'"),
        (lambda frame: frame.assign(ids="4874"), "something else than JSON lists"),
        (lambda frame: frame.assign(form="yes"), "has form 'yes' twice"),
        (lambda frame: frame.assign(form="", ids="[1, 2]"), r"without a form has ids \[1, 2\]"),
    ],
)
def test_broken_forms_are_refused(change, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        forms.load(written(change(form_rows()), tmp_path))


@pytest.mark.parametrize(("piece", "text"), [("▁Yes", " Yes"), ("ĠYes", " Yes"), ("Yes", "Yes"), ("", ""), ("▁", " ")])
def test_surfaces_of_pieces(piece, text):
    assert forms.surface(piece) == text


def audit(encodings: dict | None = None) -> dict:
    stated = {form: [5081 if "y" in form.lower() else 708] for form in forms.YES_FORMS + forms.NO_FORMS} | {
        " yes": [28705, 5081]
    }
    stated |= encodings or {}
    return {
        "summary": {
            "yes_form_to_ids": {form: stated[form] for form in forms.YES_FORMS},
            "no_form_to_ids": {form: stated[form] for form in forms.NO_FORMS},
        },
        "results": [{"top_token_id": 5081, "top_token_str": "yes"}, {"top_token_id": 9, "top_token_str": "?"}],
    }


def test_forms_from_records_by_hand(tmp_path):
    for name in ("a.json", "b.json"):
        files.write_json(audit(), tmp_path / name)
    table = forms.from_records([tmp_path / "a.json", tmp_path / "b.json"], "released", "m")
    rows = table.set_index("form").loc[list(forms.YES_FORMS)]
    assert rows["ids"].tolist() == ["[5081]", "[5081]", "[28705, 5081]", "[5081]"]
    assert rows["in_dynamic_set"].tolist() == [True, True, False, True]
    assert rows["emitted"].tolist() == [2, 2, 0, 2]
    loaded = forms.load(written(table, tmp_path))
    assert forms.meanings(loaded)[9] == ("", "?", 2)
    files.write_json(audit({" yes": [1, 2]}), tmp_path / "b.json")
    with pytest.raises(BadInput, match=r"b\.json states other encodings"):
        forms.from_records([tmp_path / "a.json", tmp_path / "b.json"], "released", "m")
    files.write_json({"results": []}, tmp_path / "b.json")
    with pytest.raises(BadInput, match=r"b\.json: its summary has no yes_form_to_ids"):
        forms.from_records([tmp_path / "b.json"], "released", "m")


# --- notation and templates


def test_notation_is_complete_and_prints_mathematics():
    table = table6.build(table6.load(), "mini", NOTE)
    assert [row[0] for row in table.printed()] == ["P, N", "T", "G", "G_tot", "ρ_N", "φ", "ℓ_v", "ŷ"]
    assert r"$\rho_N$ & share of the G" in table.latex() and r"$\ell_v$ & logit" in table.latex()
    assert not any(0xE000 <= ord(character) < 0xF900 for character in table.latex())
    assert "| φ | share of the P - T" in table.markdown()


def test_notation_names_columns_that_exist():
    from workflow.lib.statistics import PROTOCOL_GAP_COLUMNS

    named = [name for cell in table6.load()["column"] for name in cell.split(", ") if name]
    assert named and set(named) <= set(PROTOCOL_GAP_COLUMNS)


def test_broken_notation_is_refused(tmp_path):
    path = tmp_path / "notation.csv"
    path.write_text("symbol,tex,meaning,column\nT,$T$,,t\n", encoding="utf-8")
    with pytest.raises(BadInput, match="a symbol without a meaning"):
        table6.load(path)


def template_answers(folder: Path, template: str, yes: int, n: int = 4, model: str = "m") -> Path:
    frames = [
        pd.DataFrame(
            {
                "dataset": "d",
                "split": "adversarial",
                "id": range(1, n + 1),
                "label": ["yes", "no"] * (n // 2),
                "emitted_id": pd.array([1] * n, dtype="int32"),
                "emitted_text": "x",
                "readout": readout,
                "answer": ["yes"] * yes + ["no"] * (n - yes),
                "tie": False,
                "margin": pd.array([None] * n, dtype="Float32"),
            }
        )
        for readout in table11.READOUTS
    ]
    path = folder / f"{template}.parquet"
    table = answers.to_table(pd.concat(frames, ignore_index=True))
    answers.save(table, path, {"study": "mini", "model": model, "basis": "logits"})
    return path


def test_templates_are_counted_side_by_side(tmp_path):
    paths = {"as_run": template_answers(tmp_path, "as_run", 3), "native": template_answers(tmp_path, "native", 0)}
    counted = templates.table(paths, "mini", "m", list(table11.READOUTS))
    assert counted["template"].tolist() == ["as_run"] * 4 + ["native"] * 4
    assert counted.loc[0, ["tp", "fp", "fn", "tn"]].tolist() == [2, 1, 0, 1]
    table = table11.build(counted, "m", {"native": "Native", "as_run": "As run"}, NOTE)
    assert table.printed()[0] == ["Native", "legacy_2tok", "0.0000", "0.0000", "0.0000", "0.000"]
    assert table.printed()[5] == ["", "legacy_8tok", "0.8000", "0.6667", "1.0000", "0.750"]
    assert "first 4 questions of split adversarial" in table.caption
    with pytest.raises(BadInput, match="template paper, readout legacy_2tok"):
        table11.build(counted, "m", {"paper": "Paper"})


def test_templates_must_ask_the_same_questions(tmp_path):
    paths = {"as_run": template_answers(tmp_path, "as_run", 3), "native": template_answers(tmp_path, "native", 0, n=2)}
    with pytest.raises(BadInput, match=r"native\.parquet answers other questions than template 'as_run'"):
        templates.table(paths, "mini", "m", list(table11.READOUTS))
    with pytest.raises(BadInput, match="answers of model 'other' where 'm' is expected"):
        path = template_answers(tmp_path, "other", 1, model="other")
        templates.table({"as_run": path}, "mini", "m", list(table11.READOUTS))


# --- the released records


def test_released_templates_give_table_11(shared_data, tmp_path):
    paths = {}
    for template, mode in (("as_run", "paper_template"), ("native", "native_chat_template")):
        name = f"llava-hf_llava-v1.6-mistral-7b-hf_pope_adversarial_500q_{mode}_token_audit.json"
        expected = records.Expected("adversarial", 500, "llava-hf/llava-v1.6-mistral-7b-hf", mode)
        frame = records.read(shared_data / "released" / name, "token_audit", "pope-coco", expected)
        paths[template] = tmp_path / f"{template}.parquet"
        metadata = {"study": "released", "model": "llava16_mistral", "basis": "released records"}
        answers.save(answers.to_table(frame), paths[template], metadata)
    counted = templates.table(paths, "released", "llava16_mistral", list(table11.READOUTS))
    table = table11.build(counted, "llava16_mistral", {"as_run": "Paper template", "native": "Native chat template"})
    assert [row[2:] for row in table.printed()] == [
        ["0.6667", "0.5000", "1.0000", "1.000"],
        ["0.0000", "0.0000", "0.0000", "0.000"],
        ["0.8719", "0.8352", "0.9120", "0.546"],
        ["0.8719", "0.8352", "0.9120", "0.546"],
        ["0.6925", "0.5297", "1.0000", "0.944"],
        ["0.0000", "0.0000", "0.0000", "0.000"],
        ["0.8621", "0.9517", "0.7880", "0.414"],
        ["0.8621", "0.9517", "0.7880", "0.414"],
    ]


def test_released_records_give_table_10(shared_data, tmp_path):
    name = "llava16_mistral_pope_{}_3000q_paper_template_token_audit.json"
    paths = [shared_data / "released" / name.format(split) for split in ("adversarial", "popular", "random")]
    encoded = forms.load(written(forms.from_records(paths, "released", "llava16_mistral"), tmp_path))
    table = table10.build(encoded, "llava16_mistral", "LLaVA-1.6-Mistral-7B")
    assert [row[1] for row in table.printed()] == [
        *("[5081]", "[5592]", "[28705, 5081]", "[28705, 5592]"),
        *("[708]", "[1770]", "[28705, 708]", "[28705, 1770]"),
    ]
    assert table.frame["in_dynamic_set"].tolist() == [True, True, False, False] * 2
    assert table.frame["emitted"].sum() == 9000


# --- what a change reruns


@pytest.mark.parametrize("number", range(1, 11))
def test_restyling_one_figure_changes_its_rule_only(number, repository, tmp_path):
    shutil.copytree(repository / "workflow", tmp_path / "workflow", ignore=shutil.ignore_patterns("__pycache__"))
    scripts = [path.stem for path in sorted((tmp_path / "workflow/scripts").glob("*.py"))]
    before = {name: provenance.code_digest(tmp_path, name) for name in scripts}
    module = tmp_path / f"workflow/lib/figures/fig{number}.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n\nMARGIN = 0.5\n", encoding="utf-8")
    after = {name: provenance.code_digest(tmp_path, name) for name in scripts}
    assert [name for name in scripts if before[name] != after[name]] == [f"plot_fig{number}"]


@pytest.mark.parametrize("name", [*(f"fig{number}" for number in range(1, 11)), *(f"table{n}" for n in range(1, 14))])
def test_every_exhibit_has_a_caption_of_one_paragraph(name, repository):
    text = (repository / f"workflow/report/{name}.rst").read_text(encoding="utf-8")
    assert text.endswith("\n") and text.count("\n") == 1
    assert "{{ snakemake.params.study }}" in text
    assert len(text) > 120
