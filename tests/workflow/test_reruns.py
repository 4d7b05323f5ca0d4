"""What is run again, and what is not."""

import os
import shutil
import time
from collections import Counter

import pytest

NOTHING = Counter()
USERS_OF_ANSWERS = {"compare_answers", "compare_readouts", "compare_splits", "count_first_tokens"}


def test_second_run_does_nothing(tiny):
    assert tiny.planned() == NOTHING
    assert tiny.build() == NOTHING


def test_touching_cloning_or_moving_changes_nothing(tiny, tmp_path):
    later = time.time() + 5
    for path in tiny.folder.rglob("*"):
        if path.is_file() and not path.is_relative_to(tiny.path("results")) and ".snakemake" not in path.parts:
            os.utime(path, (later, later))
    assert tiny.planned() == NOTHING
    assert tiny.copy(tmp_path / "elsewhere").planned() == NOTHING


def test_comments_and_docstrings_in_any_module_rerun_nothing(tiny):
    for layer in ("lib", "models", "scripts"):
        for path in tiny.path(f"workflow/{layer}").rglob("*.py"):
            if "code" not in path.parent.name:  # the modelling code of a checkpoint is data
                path.write_text(path.read_text() + "\n# another remark\n")
    assert tiny.planned() == NOTHING


def test_a_changed_readout_reruns_answers_and_their_users_but_no_model(tiny):
    tiny.edit("workflow/lib/readouts.py", "np.where(yes > no,", "np.where(no < yes,")
    planned = tiny.planned()
    assert planned["read_answers"] == 6
    assert planned.keys() >= USERS_OF_ANSWERS
    assert not planned.keys() & {
        "train_base",
        "train_checkpoint",
        "build_scenes",
        "infer_shard",
        "merge_shards",
    }


def test_a_changed_adapter_reruns_its_family_only(tiny):
    tiny.edit("workflow/models/instructblip.py", "class Family", "OTHER = 1\n\n\nclass Family")
    planned = tiny.planned()
    assert planned["infer_shard"] == 6 and planned["merge_shards"] == 3
    assert "train_checkpoint" not in planned


def test_a_changed_table_reruns_that_table_and_the_ledger_only(tiny):
    tiny.edit("workflow/lib/tables/table4.py", "def build", "OTHER = 1\n\n\ndef build")
    assert set(tiny.planned()) <= {"tabulate_table4", "check_claims", "all"}
    assert tiny.planned()["tabulate_table4"] == 1


def test_a_restyled_figure_alone_is_drawn_again(tiny):
    tiny.edit("workflow/lib/figures/fig5.py", "@style.styled", "OTHER = 1\n\n\n@style.styled")
    assert tiny.planned() == Counter({"plot_fig5": 1, "all": 1})


def test_a_deleted_shard_alone_is_run_again(tiny):
    table = tiny.path("results/tables/table4.csv").read_bytes()
    kept = tiny.path("results/logits/llava15/random/1.parquet")
    before = kept.stat().st_mtime_ns
    tiny.path("results/logits/llava15/random/0.parquet").unlink()
    ran = tiny.build("results/tables/table4.csv")
    assert ran["infer_shard"] == 1
    assert set(ran) <= {"infer_shard", "merge_shards", "read_answers", "compare_answers", "tabulate_table4"}
    assert ran["merge_shards"] == 1 and ran["read_answers"] <= 1
    assert kept.stat().st_mtime_ns == before
    assert tiny.path("results/tables/table4.csv").read_bytes() == table


def test_a_single_shard_is_a_target(tiny):
    shutil.rmtree(tiny.path("results/logits/llava15"))
    assert tiny.build("results/logits/llava15/random/1.parquet") == Counter(infer_shard=1)


def test_the_merged_configuration_of_the_last_run_is_kept(tiny):
    text = tiny.path("results/run_config.yaml").read_text()
    assert "study: mini" in text and "images: 8" in text


@pytest.mark.parametrize("option", [["--config", "seed=43"], ["--config", "run={threads: 2}"]])
def test_a_changed_setting_reruns_inference(tiny, option):
    assert tiny.planned(*option)["infer_shard"] == 12


def test_another_environment_reruns_a_model_only_where_its_libraries_are_others(tiny):
    assert tiny.planned("--config", "models={llava15: {environment: gpu}}") == NOTHING
    planned = tiny.planned("--config", "models={llava15: {environment: transformers-4.44.2}}")
    assert planned["infer_shard"] == 6 and planned["merge_shards"] == 3
    assert "train_checkpoint" not in planned and "build_items" not in planned
