"""The released study's statistics and tables, built once from the real records."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
import yaml

from workflow.lib import answers, records, statistics
from workflow.lib.tables import render, table1, table2, table4, table7, table13

SPLITS = ("adversarial", "popular", "random")


@pytest.fixture(scope="session")
def released_settings(repository: Path) -> Mapping:
    """The overlay of the released study."""
    return yaml.safe_load((repository / "workflow/studies/released.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def released_answers(
    shared_data: Path, released_settings: Mapping, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[statistics.AnswerSet], list[pd.DataFrame]]:
    """Answers of the models with records, and counts of the others, by the functions that the rules call."""
    folder = tmp_path_factory.mktemp("answers")
    sets, counts = [], []
    for model, settings in released_settings["models"].items():
        released = settings["records"]
        expected = [records.Expected(**records.declared(settings, split, 3000)) for split in SPLITS]
        if "file" in released:
            path = shared_data / released["file"]
            parse = "string_parse_returned" if model == "instructblip" else "string_parse"
            counts.append(records.published_counts(path, model, parse, expected))
            continue
        for declared in expected:
            path = shared_data / records.source_of(settings, declared.split)
            frame = records.read(path, released["kind"], "pope-coco", declared)
            target = folder / f"{model}_{declared.split}.parquet"
            metadata = {"study": "released", "model": model, "basis": "released records"}
            answers.save(answers.to_table(frame), target, metadata)
            sets.append(statistics.load_answers(target))
    return sets, counts


@pytest.fixture(scope="session")
def released_answer_sets(released_answers: tuple) -> list[statistics.AnswerSet]:
    """Answers of the models with per-question records."""
    return released_answers[0]


@pytest.fixture(scope="session")
def released_tables(released_answers: tuple, released_settings: Mapping) -> dict[str, render.Table]:
    """Tables 1, 2, 4, 7 and 13 by file name, from the real records by the functions that the rules call."""
    sets, counts = released_answers
    models = list(released_settings["models"])
    study = statistics.Study("released", models, SPLITS, records.READOUTS)
    confusion = statistics.confusion_table(sets, counts, study)
    display = {model: settings["display"] for model, settings in released_settings["models"].items()}
    parse = dict.fromkeys(models, "string_parse") | {"instructblip": "string_parse_returned"}
    return {
        "tables/table1.csv": table1.build(statistics.first_token_table(sets, study), "llava15"),
        "tables/table2.csv": table2.build(confusion, "llava15"),
        "tables/table4.csv": table4.build(confusion, display, parse),
        "tables/table7.csv": table7.build(statistics.transition_table(sets, study), "llava15"),
        "tables/table13.csv": table13.build(confusion, "llava15"),
    }


@pytest.fixture(scope="session")
def released_frames(
    released_tables: Mapping[str, render.Table], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pd.DataFrame]:
    """The same tables after a round trip through their CSV files."""
    folder = tmp_path_factory.mktemp("tables")
    frames = {}
    for name, table in released_tables.items():
        csv = folder / Path(name).name
        table.save(csv, csv.with_suffix(".md"), csv.with_suffix(".tex"))
        frames[name] = pd.read_csv(csv, keep_default_na=False)
    return frames
