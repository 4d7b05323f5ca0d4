"""The first paper's released records and published metrics, checked and brought into this project's layout.

Two kinds of per-question files exist. The LLaVA-1.5 audit (``two_rules``) keeps the two-token and the
eight-token decision and the emitted token. The LLaVA-1.6 audit (``token_audit``) keeps four decisions, the
emitted token and its text. Of the other models only four-decimal metrics are published
(``published_metrics``). Every file is recounted against its own summary before it is used.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflow.lib import files, metrics
from workflow.lib.errors import BadInput

READOUTS = ("legacy_2tok", "legacy_8tok", "dynamic_single", "string_parse", "string_parse_returned")
LABELS = ("yes", "no")
RESTORE = "restore the released file"
# what the LLaVA-1.5 audit emitted: token id -> surface form, answer (paper, Table 1 and Table 5)
EMITTED = {3869: (" Yes", "yes"), 1939: (" No", "no")}
# readout -> block of the summary
_TWO_RULES = {"legacy_2tok": "eval_2token", "legacy_8tok": "eval_8token"}
_TOKEN_AUDIT = ("legacy_2tok", "legacy_8tok", "dynamic_single", "string_parse")
_METRICS = ("f1", "precision", "recall", "yes_rate")


@dataclass(frozen=True)
class Expected:
    """What a record file is declared to be.

    ``model_id`` and ``prompt_mode`` are compared where the summary states them; ``prompt_mode`` may be empty.
    """

    split: str
    rows: int
    model_id: str
    prompt_mode: str = ""


def source_of(settings: Mapping[str, Any], split: str = "") -> str:
    """Return the name of the source of one split, from a model's entry in the configuration.

    A model has one file a split, or one ``file`` for all splits.
    """
    released = settings["records"]
    return released["file"] if "file" in released else released["files"][split]


def declared(settings: Mapping[str, Any], split: str, rows: int) -> dict[str, Any]:
    """Return the fields of `Expected` for one split, from a model's entry in the configuration."""
    prompt_mode = settings["records"]["prompt_mode"]
    return {"split": split, "rows": rows, "model_id": settings["model_id"], "prompt_mode": prompt_mode}


def read(path: str | Path, kind: str, dataset: str, expected: Expected) -> pd.DataFrame:
    """Read one file of per-question records into the layout of answers.

    Parameters
    ----------
    path : path
        The released JSON file.
    kind : {"two_rules", "token_audit"}
        Which of the two record layouts it has.
    dataset : str
        Name written into the answers.
    expected : Expected
        Split, row count, model and prompt that are declared for it.

    Returns
    -------
    pandas.DataFrame
        Five rows a question, in the order of `READOUTS` and then of id; columns dataset, split, id (int64),
        label, emitted_id (int32), emitted_text, readout, answer, tie, margin. No record holds a logit, so tie
        is False and margin missing throughout. In ``two_rules`` files dynamic_single and string_parse follow
        from the emitted token; string_parse_returned equals string_parse, because neither model's generation
        returns the prompt.

    Raises
    ------
    BadInput
        Any record or summary field that is not what was declared, and any count that does not add up.
    """
    path = Path(path)
    document = files.read_json(path)
    if not isinstance(document, dict) or not {"summary", "results"} <= document.keys():
        raise BadInput(f"{path} has no 'summary' and 'results': it is no record file, so {RESTORE}.")
    converter = {"two_rules": _two_rules, "token_audit": _token_audit}.get(kind)
    if converter is None:
        raise BadInput(f"{path}: kind {kind!r} of records is unknown; use two_rules or token_audit.")
    summary, rows = document["summary"], document["results"]
    _check_declared(path, summary, expected)
    ids = _check_rows(path, rows, expected)
    questions, answers = converter(path, summary, rows)
    questions.insert(0, "id", np.asarray(ids, dtype=np.int64))
    questions.insert(0, "split", expected.split)
    questions.insert(0, "dataset", dataset)
    return pd.concat(
        [questions.assign(readout=name, answer=answers[name]) for name in READOUTS], ignore_index=True
    ).assign(tie=False, margin=pd.array([pd.NA] * len(READOUTS) * len(rows), dtype="Float32"))


def question_id(value: object, where: str) -> int:
    """Return a question id, released as an integer or as a string of digits, as an integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and str(int(value)) == value:
        return int(value)
    raise BadInput(f"{where}: question_id {value!r} is neither an integer nor its digits: {RESTORE}.")


def _check_declared(path: Path, summary: Any, expected: Expected) -> None:
    if not isinstance(summary, dict):
        raise BadInput(f"{path}: 'summary' is not an object: {RESTORE}.")
    wanted = {
        ("split",): expected.split,
        ("n_total", "n"): expected.rows,
        ("model_id", "model_path"): expected.model_id,
        ("prompt_mode",): expected.prompt_mode,
    }
    for names, value in wanted.items():
        for name in names:
            if name in summary and value != "" and summary[name] != value:
                raise BadInput(
                    f"{path}: its summary has {name} {summary[name]!r} where {value!r} is declared: give the "
                    "file of "
                    "that run or correct the study's configuration."
                )
    if "split" not in summary or not {"n_total", "n"} & summary.keys():
        raise BadInput(f"{path}: its summary names no split or no number of rows: {RESTORE}.")
    if summary.get("n_errors", 0):
        raise BadInput(
            f"{path}: its summary counts {summary['n_errors']} failed questions where 0 are expected: {RESTORE}."
        )


def _check_rows(path: Path, rows: Any, expected: Expected) -> list[int]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: 'results' is not a list of records: {RESTORE}.")
    labels = Counter(str(row.get("label")) for row in rows)
    if len(rows) != expected.rows:
        raise BadInput(
            f"{path} has {len(rows)} records ({labels['yes']} yes, {labels['no']} no) where {expected.rows} "
            "are declared "
            f"for split {expected.split}: give the complete file or correct dataset.rows."
        )
    kinds = {type(row.get("question_id")) for row in rows}
    ids: list[int] = []
    for number, row in enumerate(rows, 1):
        where = f"{path} record {number}"
        found = question_id(row.get("question_id"), where)
        if type(row["question_id"]) is not type(rows[0]["question_id"]):
            names = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise BadInput(
                f"{where}: question_id is of type {names} within one file, where one type is expected: {RESTORE}."
            )
        if found != number:
            what = "is a duplicate" if found in ids else f"stands where {number} is expected"
            raise BadInput(f"{where}: question_id {found} {what}; ids run from 1 without gaps, so {RESTORE}.")
        if row.get("label") != LABELS[(number - 1) % 2]:
            raise BadInput(
                f"{where}: label {row.get('label')!r} where {LABELS[(number - 1) % 2]!r} is expected; labels "
                "alternate "
                f"yes, no, so {RESTORE}."
            )
        ids.append(found)
    return ids


def _column(path: Path, rows: Sequence[dict], field: str, allowed: Sequence[str]) -> list[str]:
    for number, row in enumerate(rows, 1):
        if row.get(field) not in allowed:
            raise BadInput(
                f"{path} record {number}: {field} is {row.get(field)!r} where one of {', '.join(allowed)} is "
                "expected: "
                f"{RESTORE}."
            )
    return [row[field] for row in rows]


def _tokens(path: Path, rows: Sequence[dict]) -> list[int]:
    for number, row in enumerate(rows, 1):
        token = row.get("top_token_id")
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise BadInput(f"{path} record {number}: top_token_id {token!r} is no token id: {RESTORE}.")
    return [row["top_token_id"] for row in rows]


def _questions(rows: Sequence[dict], tokens: Sequence[int], texts: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "label": [row["label"] for row in rows],
            "emitted_id": np.asarray(tokens, dtype=np.int32),
            "emitted_text": list(texts),
        }
    )


def _two_rules(path: Path, summary: dict, rows: Sequence[dict]) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    tokens = _tokens(path, rows)
    for number, token in enumerate(tokens, 1):
        if token not in EMITTED:
            raise BadInput(
                f"{path} record {number}: emitted token {token} where {' or '.join(map(str, EMITTED))} is "
                "expected; its "
                f"answer cannot be told from the token, so {RESTORE}."
            )
    emitted = [EMITTED[token][1] for token in tokens]
    answers = {
        "legacy_2tok": _column(path, rows, "pred_2tok", LABELS),
        "legacy_8tok": _column(path, rows, "pred_8tok", LABELS),
        "dynamic_single": emitted,
        "string_parse": emitted,
        "string_parse_returned": emitted,
    }
    questions = _questions(rows, tokens, [EMITTED[token][0] for token in tokens])
    for readout, block in _TWO_RULES.items():
        _check_summary(path, summary, block, questions["label"], answers[readout])
    counted = {str(token): count for token, count in Counter(tokens).items()}
    _same(path, "top_tokens_generated", summary.get("top_tokens_generated"), counted)
    return questions, answers


def _token_audit(path: Path, summary: dict, rows: Sequence[dict]) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    tokens = _tokens(path, rows)
    answers = {name: _column(path, rows, f"pred_{name}", (*LABELS, "unknown")) for name in _TOKEN_AUDIT}
    answers["string_parse_returned"] = answers["string_parse"]
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get("top_token_str"), str):
            raise BadInput(f"{path} record {number}: top_token_str {row.get('top_token_str')!r} is no text: {RESTORE}.")
    questions = _questions(rows, tokens, [row["top_token_str"] for row in rows])
    for readout in _TOKEN_AUDIT:
        _check_summary(path, summary, f"eval_{readout}", questions["label"], answers[readout])
    stated = summary.get("top_token_counts")
    if isinstance(stated, list):
        stated = {str(entry.get("token_id")): entry.get("count") for entry in stated if isinstance(entry, dict)}
    _same(path, "top_token_counts", stated, {str(token): count for token, count in Counter(tokens).items()})
    return questions, answers


def _check_summary(path: Path, summary: dict, block: str, labels: Sequence[str], answers: Sequence[str]) -> None:
    stated = summary.get(block)
    if not isinstance(stated, dict):
        raise BadInput(f"{path}: its summary has no {block}: {RESTORE}.")
    pairs = Counter(zip(labels, answers, strict=True))
    tp, fp, fn, tn = (pairs[pair] for pair in (("yes", "yes"), ("no", "yes"), ("yes", "no"), ("no", "no")))
    unknown = len(labels) - tp - fp - fn - tn
    counts = {"tp": tp, "fp": fp, "fn": fn, "tn": tn, "unknown": unknown, "yes_predictions": tp + fp}
    for name, recounted in counts.items():
        if name in stated:
            _same(path, f"{block}.{name}", stated[name], recounted)
    positives = sum(label == "yes" for label in labels)
    computed = {
        "f1": _ratio(2 * tp, tp + fp + positives),
        "precision": _ratio(tp, tp + fp),
        "recall": _ratio(tp, positives),
        "yes_rate": _ratio(tp + fp, len(labels)),
    }
    for name, value in computed.items():
        # the LLaVA-1.5 files round the yes-rate to three decimals, all others are four
        half = 0.5e-3 if name == "yes_rate" and block in _TWO_RULES.values() else 0.5e-4
        if not isinstance(stated.get(name), int | float) or abs(stated[name] - value) > half + 1e-9:
            _same(path, f"{block}.{name}", stated.get(name), round(value, 6))


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else 0.0


def _same(path: Path, what: str, stated: object, recounted: object) -> None:
    if stated != recounted:
        raise BadInput(
            f"{path}: its summary has {what} {json.dumps(stated)} but its records give "
            f"{json.dumps(recounted)}: "
            f"{RESTORE}."
        )


def published_counts(path: str | Path, model: str, string_parse: str, expected: Sequence[Expected]) -> pd.DataFrame:
    """Turn one model's published four-decimal metrics into integer confusion counts.

    Half of the questions of a split have the label yes, so that recall gives the true positives and the
    yes-rate the false positives; F1 and precision must then come out as published.

    Parameters
    ----------
    path : path
        The released metrics of several models (``multi_model_results.json``).
    model : str
        Key of the model in that file and in the result.
    string_parse : str
        Readout that the published string parse of this model stands for: ``string_parse`` where the generated
        tokens were parsed, ``string_parse_returned`` where the prompt was parsed with them.
    expected : sequence of Expected
        What is declared of each split, in the order wanted.

    Returns
    -------
    pandas.DataFrame
        Columns model, split, readout, tp, fp, fn, tn, unknown_yes, unknown_no, basis ("published metrics").

    Raises
    ------
    BadInput
        A missing model, split, readout or metric, another checkpoint or row count, or metrics that fit no
        confusion table.
    """
    path = Path(path)
    entry = _published(path, model)
    readouts = {name: name for name in _TOKEN_AUDIT} | {"string_parse": string_parse}
    counts = []
    for stated in expected:
        wanted = {
            "model_id": stated.model_id,
            "samples_per_split": stated.rows,
            "prompt_mode": stated.prompt_mode,
        }
        for name, value in wanted.items():
            if value != "" and entry.get(name) != value:
                raise BadInput(
                    f"{path}: {model} has {name} {entry.get(name)!r} where {value!r} is declared: give the "
                    "file of that "
                    "run or correct the study's configuration."
                )
        half = stated.rows // 2
        for published, readout in readouts.items():
            where = f"{path}: {model}, {stated.split}, eval_{published}"
            values = _metrics(where, entry.get("splits"), stated.split, f"eval_{published}")
            try:
                found = metrics.confusion_from_metrics(**values, positives=half, negatives=half)
            except BadInput as problem:
                raise BadInput(f"{where}: {problem}") from None
            counts.append(
                {
                    "model": model,
                    "split": stated.split,
                    "readout": readout,
                    "tp": found.tp,
                    "fp": found.fp,
                    "fn": found.fn,
                    "tn": found.tn,
                    "unknown_yes": 0,
                    "unknown_no": 0,
                    "basis": "published metrics",
                }
            )
    return pd.DataFrame(counts)


def _published(path: Path, model: str) -> dict:
    document = files.read_json(path)
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, dict) or not all(isinstance(entry, dict) for entry in results.values()):
        raise BadInput(f"{path} has no 'results' by model: it is no file of published metrics, so {RESTORE}.")
    if model not in results:
        raise BadInput(f"{path} has no model {model!r} (it has {', '.join(results)}): {RESTORE}.")
    return results[model]


def _metrics(where: str, splits: Any, split: str, block: str) -> dict[str, float]:
    found: Any = splits
    for name in (split, block):
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        raise BadInput(f"{where} is missing: {RESTORE}.")
    for name in _METRICS:
        value = found.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise BadInput(f"{where}: {name} is {value!r} where a number from 0 to 1 is expected: {RESTORE}.")
    return {name: float(found[name]) for name in _METRICS}
