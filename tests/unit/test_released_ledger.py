"""The ledger of the released study, recomputed from the real records by the functions that the rules call."""

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml

from workflow.lib import (
    answers,
    claims,
    corrections,
    diagnostic,
    equations,
    files,
    forms,
    inline_numbers,
    records,
    signal_statistics,
    statistics,
    survey,
    templates,
)
from workflow.lib.tables import render, table3, table8, table9, table10, table11, table12

MODEL, SPLIT = "llava15", "adversarial"


@pytest.fixture(scope="module")
def every_frame(released_frames, shared_data, released_settings, repository, tmp_path_factory) -> dict:
    """Every table that the released study's claims name, from the real records by the functions that rules call."""
    folder = tmp_path_factory.mktemp("released")
    settings = yaml.safe_load((repository / "config.yaml").read_text(encoding="utf-8"))["statistics"]
    models = released_settings["models"]

    def stored(path: Path, kind: str, declared: records.Expected, model: str, name: str) -> Path:
        metadata = {"study": "released", "model": model, "basis": "released records"}
        target = folder / f"{name}.parquet"
        answers.save(answers.to_table(records.read(path, kind, "pope-coco", declared)), target, metadata)
        return target

    paths, counts = {}, []
    for model, described in models.items():
        split_records = [records.Expected(**records.declared(described, split, 3000)) for split in render.SPLITS]
        released = described["records"]
        if "file" in released:
            parse = "string_parse_returned" if model == "instructblip" else "string_parse"
            counts.append(records.published_counts(shared_data / released["file"], model, parse, split_records))
            continue
        for declared in split_records:
            path = shared_data / records.source_of(described, declared.split)
            name = f"{model}_{declared.split}"
            paths[model, declared.split] = stored(path, released["kind"], declared, model, name)
    sets = [statistics.load_answers(path) for path in paths.values()]
    study = statistics.Study("released", list(models), render.SPLITS, records.READOUTS)
    found = {
        "statistics/confusion.csv": statistics.confusion_table(sets, counts, study),
        "statistics/first_tokens.csv": statistics.first_token_table(sets, study),
        "statistics/transitions.csv": statistics.transition_table(sets, study),
        "statistics/protocol_gap.csv": statistics.protocol_gap_table(sets, study),
    }
    found["statistics/equations.csv"] = equations.evaluate(found["statistics/transitions.csv"])
    surveyed = survey.load()
    gap = survey.readout_gap(found["statistics/protocol_gap.csv"], MODEL)
    found["statistics/survey.csv"] = survey.statistics(surveyed, gap, "released")
    for name, module in (("table3", table3), ("table12", table12)):
        found[f"tables/{name}.csv"] = module.build(surveyed, "released").frame

    declared = records.Expected(SPLIT, 3000, "llava-hf/llava-1.5-7b-hf", "")
    runs = released_settings["statistics"]["released"]
    frame, origin = diagnostic.read(shared_data / runs["diagnostic"], "pope-coco", declared)
    metadata = {"study": "released", "model": MODEL, "split": SPLIT, "basis": "released records"} | origin
    measured = [(frame, metadata)]
    bootstrap = [settings[name] for name in ("comparisons", "level", "resamples", "seed")]
    found["statistics/signal_tests.csv"] = signal_statistics.signal_tests(measured, *bootstrap)
    found["statistics/instrumented_pass.csv"] = signal_statistics.instrumented_pass(measured, sets)
    summaries = diagnostic.released_corrections(
        [shared_data / run["source"] for run in runs["corrections"]],
        [
            diagnostic.CorrectionRun(**{name: run[name] for name in ("method", "beta", "mode")})
            for run in runs["corrections"]
        ],
        MODEL,
        declared,
    )
    counted = corrections.table(measured, [summaries], "released")
    found["tables/table8.csv"] = table8.build(counted, MODEL, SPLIT, "as run").frame
    found["tables/table9.csv"] = table9.build(found["statistics/signal_tests.csv"], MODEL, SPLIT).frame

    encoded_model = "llava16_mistral"
    audits = [shared_data / records.source_of(models[encoded_model], split) for split in render.SPLITS]
    files.write_csv(forms.from_records(audits, "released", encoded_model), folder / "forms.csv")
    encoded = forms.load(folder / "forms.csv")
    found["tables/table10.csv"] = table10.build(encoded, encoded_model, "").frame
    compared = {}
    for template, mode in (("as_run", "paper_template"), ("native", "native_chat_template")):
        name = f"released/llava-hf_llava-v1.6-mistral-7b-hf_pope_{SPLIT}_500q_{mode}_token_audit.json"
        asked = records.Expected(SPLIT, 500, models[encoded_model]["model_id"], mode)
        compared[template] = stored(shared_data / name, "token_audit", asked, encoded_model, template)
    counted = templates.table(compared, "released", encoded_model, list(records.READOUTS))
    display = dict.fromkeys(compared, "")
    found["tables/table11.csv"] = table11.build(counted, encoded_model, display).frame
    found["statistics/inline_numbers.csv"] = inline_numbers.table(
        "released",
        MODEL,
        *(found[f"statistics/{name}.csv"] for name in ("confusion", "first_tokens", "transitions")),
        *(found[f"statistics/{name}.csv"] for name in ("signal_tests", "instrumented_pass")),
        found["tables/table8.csv"],
        encoded,
        answers.load(paths[MODEL, SPLIT])[0],
        measured[0],
        inline_numbers.Settings({model: described["display"] for model, described in models.items()}),
    )
    for name, table in found.items():
        files.write_csv(table, folder / Path(name).name)
        found[name] = files.read_csv(folder / Path(name).name)
    return dict(released_frames) | found


@pytest.fixture(scope="module")
def released_ledger(every_frame) -> pd.DataFrame:
    """The ledger of the released study."""
    return claims.check(claims.load(), every_frame, "released", claims.load_reasons())


def test_the_ledger_of_the_real_records(released_ledger):
    assert Counter(released_ledger["verdict"]) == {
        "same": 657,
        "differs": 19,
        "not in this study": 35,
        "cannot be recomputed": 60,
    }
    assert claims.tally(released_ledger, "released").startswith(
        "771 claims in study released: 657 same, 19 differs, 35 not in this study, 60 cannot be recomputed\n"
    )


def test_every_claim_that_released_data_can_settle_is_settled(released_ledger, every_frame):
    settled = released_ledger[released_ledger["settled_by"].str.split().map(lambda studies: "released" in studies)]
    assert set(settled["verdict"]) == {"same", "differs"}
    assert set(settled["file"]) == set(claims.tables_needed(claims.load(), "released"))
    assert set(settled["file"]) <= set(every_frame)
    others = released_ledger.drop(index=settled.index)
    assert others["reason"].astype(bool).all() and set(others["recomputed"]) == {""}


def test_every_difference_has_a_reason(released_ledger):
    differs = released_ledger[released_ledger["verdict"] == "differs"]
    assert differs["reason"].astype(bool).all()
    assert differs["claim"].tolist() == [
        "table8.uniform.f1",
        "table8.uniform.precision",
        "table8.uniform.recall",
        "table9.logit_gap.fn.sd",
        "section1.contrasts",
        "section3_1.minutes",
        "section6.forms",
        "appendix_b.settled_eight",
        "appendix_f.contrasts",
        "appendix_f1.contrasts",
        "appendix_f2.with_row",
        "appendix_f2.gain_most",
        "appendix_f2.cost_most",
        "table8_caption.with_row",
        "appendix_f3.layer_last",
        "appendix_f3.layer_last_2",
        "appendix_f3.gap_yes.p",
        "appendix_f3.tests",
        "appendix_f3.attention.d_2",
    ]
