"""Bad input through the whole workflow: one sentence, a non-zero exit, nothing left half written."""

import json
import re
import subprocess

import pyarrow.parquet as pq
import pytest

from workflow.lib import logits


def refused(checkout, sentence, *arguments, **keywords):
    done = checkout.run(*arguments, **keywords)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert sentence in output, output[-3000:]
    assert "Traceback" not in output, output[-3000:]
    return output


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("colour=red", "key 'colour' is not known"),
        ("run={shard: 2}", "run: key 'shard' is not known (did you mean 'shards'?)"),
        ("run={models: [llava51]}", "run.models: 'llava51' is not known (did you mean 'llava15'?)"),
        ("run={splits: [randum]}", "run.splits.0: 'randum' is not one of"),
        ("run={template: native}", "run.template is 'native', which model llava15 does not have"),
        ("readouts={names: [legacy_2tk]}", "'legacy_2tk' is not known (did you mean 'legacy_2tok'?)"),
        ("run={quantisation: int3}", "run.quantisation: 'int3' is not one of"),
        ("models={llava15: {environment: gpus}}", "models.llava15.environment: 'gpus' is not one of"),
        (
            "run={models: [qwen2_vl]} models={qwen2_vl: {environment: transformers-4.44.2}}",
            "models.qwen2_vl: transformers 4.44.2 does not have the model family qwen2_vl yet",
        ),
    ],
)
def test_configuration(tiny, setting, sentence):
    refused(tiny, sentence, "--dry-run", "--config", *re.split(r"(?<=}) (?=models)", setting))


def test_a_model_of_another_environment_is_refused_before_it_is_loaded(tiny):
    shard = "results/logits/llava15/random/0.parquet"
    tiny.path(shard).unlink()
    sentence = (
        "model llava15 is run in environment transformers-4.40.1, which has transformers 4.40.1, but transformers "
    )
    refused(tiny, sentence, shard, "--config", "models={llava15: {environment: transformers-4.40.1}}")
    assert not tiny.path(shard).exists()


def test_unknown_targets_are_refused_at_once(tiny):
    for name in ("results/logits/llava51/random/0.parquet", "results/logits/llava15/random/2.parquet"):
        refused(tiny, "No rule to produce", name)


def test_row_count_of_a_question_file(tiny):
    tiny.path("results/items/random.parquet").unlink()
    refused(tiny, "has 48 rows (24 yes, 24 no) but 54 rows", "--config", "dataset={rows: 54}")
    assert not tiny.path("results/items/random.parquet").exists()


def test_a_quantised_request_that_cannot_be_met_is_refused(tiny, tmp_path):
    target = "results/logits/llava15/random/0.parquet"
    # found before any installed one, and as if it were absent
    (tmp_path / "bitsandbytes.py").write_text("raise ModuleNotFoundError('blocked', name='bitsandbytes')\n")
    refused(
        tiny,
        "run.quantisation is nf4 but bitsandbytes is not installed",
        target,
        "--config",
        "run={quantisation: nf4}",
        PYTHONPATH=str(tmp_path),
    )
    assert not tiny.path(target).exists()


def test_a_quantised_shard_says_what_was_loaded_and_is_never_merged_with_others(tiny):
    shards = [f"results/logits/llava15/random/{number}.parquet" for number in (0, 1)]
    assert tiny.build(shards[0], "--config", "run={quantisation: nf4}")["infer_shard"] == 1
    found, other = (logits.read(tiny.path(shard)).identity for shard in shards)
    assert (found["quantisation"], other["quantisation"]) == ("nf4", "none")
    assert found["quantised"]["type"] == "nf4" and found["quantised"]["kept"] == ["lm_head"]
    assert other["quantised"] == {} and set(other["parameter_types"]) == {"float32"}
    fields = {told.split(":")[0] for told in logits.differing(found, other)}
    assert fields == {"quantisation", "quantised", "parameter_types"}
    # only time stamps, as if somebody had put the file there
    refused(tiny, "made with quantisation nf4 where the configuration says none", MERGED, "--rerun-triggers", "mtime")


def test_cuda_where_there_is_none_is_refused(tiny):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    target = "results/logits/llava15/random/0.parquet"
    refused(
        tiny,
        "run.device is cuda but this machine has no usable CUDA device",
        target,
        "--config",
        "run={device: cuda}",
    )


def test_a_missing_or_altered_image_names_its_questions_before_inference(tiny):
    target = "results/logits/llava15/random/0.parquet"
    image = tiny.path("results/scenes/images/SCENE_000000000001.png")
    content = image.read_bytes()
    tiny.path(target).unlink()
    image.unlink()
    refused(tiny, "SCENE_000000000001.png is missing; questions 1, 2, 3, 4, 5, 6 need it", target)
    image.write_bytes(content[:-20])
    refused(tiny, "SCENE_000000000001.png is not the file that", target)
    assert not tiny.path(target).exists()


def test_a_damaged_checkpoint_is_refused(tiny):
    target = "results/logits/llava15/random/0.parquet"
    tiny.path(target).unlink()
    weights = tiny.path("results/checkpoints/llava15/tokenizer_config.json")
    weights.write_text(weights.read_text() + " ")
    refused(tiny, "tokenizer_config.json is missing or is not the file that", target)


def test_remote_code_needs_consent(tiny):
    target = "results/logits/mplug_owl2/random/0.parquet"
    setting = "models={mplug_owl2: {remote_code: false}}"
    refused(
        tiny,
        "set models.mplug_owl2.remote_code to true",
        target,
        "--config",
        "run={models: [mplug_owl2]}",
        setting,
    )


def change_identity(path, **changes):
    table = pq.read_table(path)
    identity = json.loads(table.schema.metadata[logits.METADATA_KEY]) | changes
    pq.write_table(table.replace_schema_metadata({logits.METADATA_KEY: json.dumps(identity).encode()}), path)


MERGED = "results/logits/llava15/random.parquet"


@pytest.mark.parametrize("field", ["revision", "quantisation", "template", "model_id", "device_name", "dataset_sha256"])
def test_a_foreign_shard_is_refused_and_the_field_named(tiny, field):
    change_identity(tiny.path("results/logits/llava15/random/1.parquet"), **{field: "another"})
    # only time stamps: somebody put this file there by hand
    refused(tiny, f"{field}", MERGED, "--rerun-triggers", "mtime")
    assert not tiny.path(MERGED).exists()


def test_a_truncated_shard_never_reaches_a_merge(tiny):
    shard = tiny.path("results/logits/llava15/random/1.parquet")
    shard.write_bytes(shard.read_bytes()[:-100])
    refused(tiny, "1.parquet is not a whole Parquet file", MERGED, "--rerun-triggers", "mtime")
    assert not tiny.path(MERGED).exists()
    shard.unlink()
    assert tiny.build(MERGED)["infer_shard"] == 1


def test_shards_of_two_question_revisions_never_merge(tiny):
    # the same questions but for one misspelt ending, as two revisions of POPE differ
    polls = tiny.path("results/scenes/pope_mini_random.json")
    text = polls.read_text()
    assert text.count("in the image?") == 48
    polls.write_text(text.replace("in the image?", "in the imange?", 1))
    shards = [tiny.path(f"results/logits/llava15/random/{number}.parquet") for number in (0, 1)]
    before = [pq.read_table(shard, columns=["prompt_sha256"])["prompt_sha256"].to_pylist() for shard in shards]
    old = shards[1].read_bytes()
    assert tiny.build(MERGED)["infer_shard"] == 2
    after = [pq.read_table(shard, columns=["prompt_sha256"])["prompt_sha256"].to_pylist() for shard in shards]
    changed = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
    assert changed == [1, 0]
    # a shard of the other revision, put there by hand
    shards[1].write_bytes(old)
    tiny.path(MERGED).unlink()
    refused(tiny, "do not belong together (dataset_sha256", MERGED)


def test_released_study_without_network_or_folder_says_how_to_supply_the_records(tiny):
    overlay = "workflow/studies/released.yaml"
    target = "results/released/tables/table4.csv"
    sentence = "supply the file from a local folder with --config released_folder=PATH"
    # a proxy that does not answer stands for a missing network
    output = refused(tiny, sentence, target, overlay=overlay, https_proxy="http://127.0.0.1:9")
    assert "cannot be fetched from https://" in output
    left = subprocess.run(
        ["find", "results/released", "-name", "*.json*"], cwd=tiny.folder, capture_output=True, text=True, check=True
    )
    assert [line for line in left.stdout.split() if "/logs/" not in line] == []


def test_released_study_names_what_a_folder_lacks(tiny, tmp_path):
    overlay = "workflow/studies/released.yaml"
    (tmp_path / "empty").mkdir()
    setting = f"released_folder={tmp_path / 'empty'}"
    output = refused(
        tiny,
        "is not in released_folder (searched",
        "results/released/tables/table4.csv",
        "--config",
        setting,
        overlay=overlay,
    )
    assert "or leave released_folder empty to fetch it" in output
