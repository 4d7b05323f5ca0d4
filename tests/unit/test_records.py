"""Released records: conversion, and every fault that a file of records may have."""

import copy
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from workflow.lib import answers, records, sources, statistics
from workflow.lib.errors import BadInput
from workflow.lib.records import Expected

TWO = Expected("adversarial", 6, "model/a")
AUDIT = Expected("popular", 4, "model/b", "paper_template")


def two_rules() -> dict:
    """Six records: two-token says yes to all but the last, the model emits yes, no, no, yes, yes, no."""
    emitted = [3869, 1939, 1939, 3869, 3869, 1939]
    two = ["yes", "yes", "yes", "yes", "yes", "no"]
    rows = [
        {
            "question_id": str(number),
            "label": "yes" if number % 2 else "no",
            "pred_2tok": answer,
            "pred_8tok": "yes" if token == 3869 else "no",
            "top_token_id": token,
        }
        for number, (token, answer) in enumerate(zip(emitted, two, strict=True), 1)
    ]
    # two-token: tp 3 fp 2 fn 0 tn 1; eight-token: tp 2 fp 1 fn 1 tn 2
    summary = {
        "split": "adversarial",
        "n": 6,
        "eval_2token": {"f1": 0.75, "precision": 0.6, "recall": 1.0, "yes_predictions": 5, "yes_rate": 0.833},
        "eval_8token": {
            "f1": 0.6667,
            "precision": 0.6667,
            "recall": 0.6667,
            "yes_predictions": 3,
            "yes_rate": 0.5,
        },
        "top_tokens_generated": {"1939": 3, "3869": 3},
    }
    return {"summary": summary, "results": rows}


def token_audit() -> dict:
    """Four records with one answer that the string parser could not read."""
    parsed = ["yes", "no", "unknown", "no"]
    rows = [
        {
            "question_id": number,
            "label": "yes" if number % 2 else "no",
            "top_token_id": 5592 if answer == "yes" else 1770,
            "top_token_str": "Yes" if answer == "yes" else "No",
            "pred_legacy_2tok": "yes",
            "pred_legacy_8tok": "no",
            "pred_dynamic_single": "yes" if answer == "yes" else "no",
            "pred_string_parse": answer,
            "decoded_response": "",
        }
        for number, answer in enumerate(parsed, 1)
    ]
    single = {"f1": 0.6667, "precision": 1.0, "recall": 0.5, "yes_predictions": 1, "yes_rate": 0.25}
    summary = {
        "model_id": "model/b",
        "split": "popular",
        "prompt_mode": "paper_template",
        "n_total": 4,
        "n_errors": 0,
        "eval_legacy_2tok": {"tp": 2, "fp": 2, "fn": 0, "tn": 0, "unknown": 0}
        | {"f1": 0.6667, "precision": 0.5, "recall": 1.0, "yes_rate": 1.0},
        "eval_legacy_8tok": {"tp": 0, "fp": 0, "fn": 2, "tn": 2, "unknown": 0}
        | {"f1": 0.0, "precision": 0.0, "recall": 0.0, "yes_rate": 0.0},
        "eval_dynamic_single": {"tp": 1, "fp": 0, "fn": 1, "tn": 2, "unknown": 0} | single,
        "eval_string_parse": {"tp": 1, "fp": 0, "fn": 0, "tn": 2, "unknown": 1} | single,
        "top_token_counts": [{"token_id": 1770, "count": 3}, {"token_id": 5592, "count": 1}],
    }
    return {"summary": summary, "results": rows}


def write(document: object, folder: Path) -> Path:
    path = folder / "records.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def read_two(document: object, folder: Path) -> pd.DataFrame:
    return records.read(write(document, folder), "two_rules", "pope", TWO)


def read_audit(document: object, folder: Path) -> pd.DataFrame:
    return records.read(write(document, folder), "token_audit", "pope", AUDIT)


def answers_of(frame: pd.DataFrame, readout: str) -> list[str]:
    return frame.loc[frame["readout"] == readout, "answer"].tolist()


def test_two_rules_by_hand(tmp_path):
    frame = read_two(two_rules(), tmp_path)
    emitted = ["yes", "no", "no", "yes", "yes", "no"]
    assert answers_of(frame, "legacy_2tok") == ["yes", "yes", "yes", "yes", "yes", "no"]
    for readout in ("legacy_8tok", "dynamic_single", "string_parse", "string_parse_returned"):
        assert answers_of(frame, readout) == emitted
    assert frame["readout"].drop_duplicates().tolist() == list(records.READOUTS)
    assert frame["id"].tolist() == [1, 2, 3, 4, 5, 6] * 5
    assert frame["emitted_text"].tolist()[:2] == [" Yes", " No"]
    assert frame["margin"].isna().all() and not frame["tie"].any()


def test_token_audit_keeps_answers_without_a_verdict(tmp_path):
    frame = read_audit(token_audit(), tmp_path)
    assert answers_of(frame, "string_parse") == ["yes", "no", "unknown", "no"]
    assert answers_of(frame, "string_parse_returned") == answers_of(frame, "string_parse")
    assert answers_of(frame, "dynamic_single") == ["yes", "no", "no", "no"]
    assert frame["emitted_id"].tolist()[:4] == [5592, 1770, 1770, 1770]


def test_the_frame_fits_the_layout_of_answers(tmp_path):
    frame = read_two(two_rules(), tmp_path)
    answers.save(answers.to_table(frame), tmp_path / "a.parquet", {"study": "s", "model": "m", "basis": "b"})
    back, metadata = answers.load(tmp_path / "a.parquet")
    assert back["answer"].tolist() == frame["answer"].tolist()
    assert back["margin"].isna().all()
    assert metadata == {"study": "s", "model": "m", "basis": "b"}


def changed(document: dict, *path: object, to: object) -> dict:
    """A copy with one value replaced."""
    document = copy.deepcopy(document)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("results", 2, "question_id"), 3, "record 3: question_id is of type int and str within one file"),
        (("results", 2, "question_id"), "3a", "record 3: question_id '3a' is neither"),
        (("results", 2, "question_id"), "03", "record 3: question_id '03' is neither"),
        (("results", 2, "question_id"), 3.0, "record 3: question_id 3.0 is neither"),
        (("results", 2, "question_id"), True, "record 3: question_id True is neither"),
        (("results", 2, "question_id"), None, "record 3: question_id None is neither"),
        (("results", 2, "question_id"), "2", "record 3: question_id 2 is a duplicate"),
        (("results", 2, "question_id"), "7", "record 3: question_id 7 stands where 3 is expected"),
        (("results", 2, "label"), "no", "record 3: label 'no' where 'yes' is expected"),
        (("results", 2, "label"), None, "record 3: label None"),
        (("results", 2, "label"), ["yes"], "record 3: label .'yes'. where"),
        (("results", 2, "pred_2tok"), "unknown", "record 3: pred_2tok is 'unknown'"),
        (("results", 2, "pred_8tok"), "Yes", "record 3: pred_8tok is 'Yes'"),
        (("results", 2, "pred_2tok"), [], r"record 3: pred_2tok is \[\]"),
        (("results", 2, "top_token_id"), 3582, "record 3: emitted token 3582 where 3869 or 1939 is expected"),
        (("results", 2, "top_token_id"), "1939", "record 3: top_token_id '1939' is no token id"),
        (("results", 2, "pred_2tok"), "no", "eval_2token.yes_predictions 5 but its records give 4"),
        (("summary", "eval_2token", "f1"), 0.7498, "eval_2token.f1 0.7498 but its records give 0.75"),
        (("summary", "eval_8token", "recall"), None, "eval_8token.recall null"),
        (("summary", "eval_8token"), None, "its summary has no eval_8token"),
        (("summary", "top_tokens_generated"), {"1939": 2, "3869": 4}, "top_tokens_generated"),
        (("summary", "split"), "random", "split 'random' where 'adversarial' is declared"),
        (("summary", "n"), 3000, "n 3000 where 6 is declared"),
        (("summary",), [], "'summary' is not an object"),
        (("results",), {}, "'results' is not a list"),
    ],
)
def test_a_fault_is_named_with_its_record(path, value, message, tmp_path):
    with pytest.raises(BadInput, match=message) as caught:
        read_two(changed(two_rules(), *path, to=value), tmp_path)
    assert "records.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("summary", "model_id"), "model/c", "model_id 'model/c' where 'model/b' is declared"),
        (("summary", "prompt_mode"), "native_chat_template", "prompt_mode 'native_chat_template'"),
        (("summary", "n_errors"), 2, "counts 2 failed questions"),
        (
            ("summary", "eval_string_parse", "unknown"),
            0,
            "eval_string_parse.unknown 0 but its records give 1",
        ),
        (("summary", "eval_legacy_8tok", "tn"), 1, "eval_legacy_8tok.tn 1 but its records give 2"),
        (("summary", "top_token_counts", 0, "count"), 4, "top_token_counts"),
        (("results", 0, "top_token_str"), None, "record 1: top_token_str None"),
        (("results", 1, "question_id"), "2", "of type int and str"),
    ],
)
def test_a_summary_that_disagrees_is_named(path, value, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        read_audit(changed(token_audit(), *path, to=value), tmp_path)


def test_a_missing_record_is_counted(tmp_path):
    document = two_rules()
    del document["results"][3]
    with pytest.raises(BadInput, match=r"has 5 records \(3 yes, 2 no\) where 6 are declared for split adversarial"):
        read_two(document, tmp_path)


def test_2910_records_where_3000_are_declared(tmp_path):
    rows = [
        {"question_id": n, "label": "yes" if n % 2 else "no", "pred_2tok": "no", "pred_8tok": "no"}
        for n in range(1, 2911)
    ]
    path = write({"summary": {"split": "random", "n": 3000}, "results": rows}, tmp_path)
    with pytest.raises(BadInput, match=r"has 2910 records .* where 3000 are declared for split random"):
        records.read(path, "two_rules", "pope", Expected("random", 3000, ""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(two_rules())[:-40], "is not JSON"),
        ("<html>sign in</html>", "is not JSON"),
        ("[]", "no 'summary' and 'results'"),
        ('{"results": []}', "no 'summary' and 'results'"),
    ],
)
def test_a_file_of_another_kind_is_refused(text, message, tmp_path):
    (tmp_path / "records.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        records.read(tmp_path / "records.json", "two_rules", "pope", TWO)


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(BadInput, match="kind 'three_rules'"):
        records.read(write(two_rules(), tmp_path), "three_rules", "pope", TWO)


def published() -> dict:
    """One model on four positives and four negatives: tp 3, fp 1."""
    rates = {"f1": 0.75, "precision": 0.75, "recall": 0.75, "yes_rate": 0.5}
    split = {f"eval_{name}": dict(rates) for name in records._TOKEN_AUDIT}
    entry = {"model_id": "hub/m", "samples_per_split": 8, "prompt_mode": "p", "splits": {"random": split}}
    return {"results": {"m": entry}}


def counts_of(document: dict, folder: Path, model: str = "m", **declared: object) -> pd.DataFrame:
    expected = Expected(**{"split": "random", "rows": 8, "model_id": "hub/m", "prompt_mode": "p"} | declared)
    return records.published_counts(write(document, folder), model, "string_parse_returned", [expected])


def test_published_metrics_become_counts(tmp_path):
    counts = counts_of(published(), tmp_path)
    assert counts["readout"].tolist() == [
        "legacy_2tok",
        "legacy_8tok",
        "dynamic_single",
        "string_parse_returned",
    ]
    assert counts[["tp", "fp", "fn", "tn", "unknown_yes", "unknown_no"]].values.tolist() == [[3, 1, 1, 3, 0, 0]] * 4
    assert set(counts["basis"]) == {"published metrics"}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("results", "m", "model_id"), "hub/x", "m has model_id 'hub/x' where 'hub/m' is declared"),
        (("results", "m", "samples_per_split"), 500, "samples_per_split 500 where 8 is declared"),
        (("results", "m", "prompt_mode"), "q", "prompt_mode 'q'"),
        (("results", "m", "splits"), {}, "m, random, eval_legacy_2tok is missing"),
        (("results", "m", "splits", "random", "eval_string_parse"), {}, "eval_string_parse: f1 is None"),
        (
            ("results", "m", "splits", "random", "eval_legacy_8tok", "f1"),
            0.76,
            "random, eval_legacy_8tok: f1 0.76",
        ),
        (("results", "m", "splits", "random", "eval_legacy_8tok", "recall"), 75, "recall is 75"),
        (("results",), [], "no 'results' by model"),
    ],
)
def test_published_metrics_that_do_not_fit_are_named(path, value, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        counts_of(changed(published(), *path, to=value), tmp_path)


def test_a_model_without_published_metrics_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"no model 'n' .it has m"):
        counts_of(published(), tmp_path, model="n")


# ---- the real files ----


def overlay(repository: Path) -> dict:
    return yaml.safe_load((repository / "workflow/studies/released.yaml").read_text(encoding="utf-8"))


def test_the_overlay_names_files_of_the_table_of_sources(repository):
    known = sources.load()
    settings = overlay(repository)
    assert settings["study"] == "released" and settings["begins_at"] == "records"
    for model in settings["models"].values():
        files = model["records"].get("files", {"all": model["records"].get("file")})
        assert set(files.values()) <= known.keys()
    for split, digest in settings["dataset"]["sha256"].items():
        name = settings["dataset"]["questions"].removeprefix("<results>/sources/").format(split=split)
        assert known[name].sha256 == digest and known[name].revision == settings["dataset"]["revision"]


def test_the_llava16_metrics_that_were_published_too_give_the_counts_of_its_records(shared_data, repository):
    settings = overlay(repository)["models"]["llava16_mistral"]
    expected = [Expected(split, 3000, settings["model_id"], "paper_template") for split in settings["records"]["files"]]
    path = shared_data / "released/multi_model_results.json"
    counts = records.published_counts(path, "llava16_mistral", "string_parse", expected)
    for declared in expected:
        name = Path(settings["records"]["files"][declared.split]).name
        frame = records.read(shared_data / "released" / name, "token_audit", "pope", declared)
        for readout, rows in frame.groupby("readout"):
            if readout == "string_parse_returned":
                continue
            recounted = statistics.metrics.confusion(rows["label"], rows["answer"])
            row = counts[(counts["split"] == declared.split) & (counts["readout"] == readout)].iloc[0]
            assert (row.tp, row.fp, row.fn, row.tn) == (
                recounted.tp,
                recounted.fp,
                recounted.fn,
                recounted.tn,
            )


@pytest.mark.parametrize("prompt_mode", ["paper_template", "native_chat_template"])
def test_the_500_question_files_of_table_11_are_sound(prompt_mode, shared_data):
    name = f"llava-hf_llava-v1.6-mistral-7b-hf_pope_adversarial_500q_{prompt_mode}_token_audit.json"
    expected = Expected("adversarial", 500, "llava-hf/llava-v1.6-mistral-7b-hf", prompt_mode)
    frame = records.read(shared_data / "released" / name, "token_audit", "pope", expected)
    assert len(frame) == 2500 and set(frame["emitted_id"]) == {5592, 1770}
    with pytest.raises(BadInput, match=r"has 500 records .* where 3000 are declared|n_total 500 where 3000"):
        records.read(
            shared_data / "released" / name,
            "token_audit",
            "pope",
            Expected("adversarial", 3000, expected.model_id),
        )
