"""The checkpoint of the rehearsal at full size, written small."""

import copy
import importlib.util
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import LlavaForConditionalGeneration

from workflow.lib import files
from workflow.lib.errors import BadInput


@pytest.fixture(scope="module")
def script(repository):
    described = importlib.util.spec_from_file_location("full_size", repository / "benchmarks/full_size.py")
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


@pytest.fixture
def small(script, monkeypatch):
    config = copy.deepcopy(script.CONFIG)
    narrow = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config["text_config"] |= narrow
    config["vision_config"] |= narrow | {"image_size": 56, "projection_dim": 64}
    monkeypatch.setattr(script, "FILE_BYTES", 5_000_000)  # the table alone has 32,064 x 64 x 2 bytes
    return config


def test_the_true_shape_has_the_published_number_of_parameters(script):
    wanted = script.shapes(script.CONFIG)
    assert round(sum(shape.numel() for shape in wanted.values()) / 1e9, 2) == 7.06
    assert wanted["language_model.model.layers.31.mlp.down_proj.weight"] == (4096, 11008)
    assert wanted["vision_tower.vision_model.embeddings.position_embedding.weight"] == (577, 1024)
    assert {"language_model.lm_head.weight", "multi_modal_projector.linear_2.bias"} <= set(wanted)
    assert all(sum(2 * wanted[name].numel() for name in part) < script.FILE_BYTES for part in script.parts(wanted))


def test_a_written_checkpoint_is_whole_and_is_continued_where_it_was_cut(script, small, tmp_path):
    size, _ = script.write_checkpoint(tmp_path, small)
    assert size == sum(path.stat().st_size for path in tmp_path.iterdir())
    weights = sorted(tmp_path.glob("*.safetensors"))
    assert len(weights) == 2
    model, report = LlavaForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.float16
    assert model.lm_head.weight.detach().float().std().item() == pytest.approx(script.HEAD_SPREAD, rel=0.01)
    first, second = (files.sha256(path) for path in weights[:2])
    kept = weights[0].stat().st_mtime_ns
    weights[1].unlink()
    (tmp_path / f".{weights[1].name}.x.part").write_bytes(b"half")
    script.write_checkpoint(tmp_path, small)
    assert weights[0].stat().st_mtime_ns == kept
    assert (files.sha256(weights[0]), files.sha256(weights[1])) == (first, second)
    assert not list(tmp_path.glob(".*"))


def test_the_rules_answer_with_both_engines_and_what_ran_is_printed(script, small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "CONFIG", small)
    monkeypatch.setattr(sys, "argv", ["full_size.py", str(tmp_path), "--threads", "1"])
    assert script.main() == 0
    printed = capsys.readouterr().out
    first, second, table = re.split(r"^shared_prefix$|^study,", printed.split("\nreference\n")[1], flags=re.MULTILINE)
    for block in (first, second):
        assert re.search(r"checkpoint checked in [\d.]+ s, loaded in [\d.]+ s", block)
        assert re.search(r"[\d.]+ s a question of 6 ", block) and re.search(r"peak memory [\d.]+ GiB", block)
        assert '"kernel": "cpu, dequantised"' in block and '"compute": "float32"' in block
    rows = table.splitlines()[1:]
    assert rows and all(row.startswith("full,llava15,random,shared_prefix,as_run,float32,nf4,") for row in rows)


def test_a_full_disk_is_refused_before_anything_is_written(script, small, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_000))
    with pytest.raises(BadInput, match=r"has 1.0 GB free where 1.0 GB are needed: choose another disk"):
        script.write_checkpoint(tmp_path, small)
    assert not list(tmp_path.iterdir())


def test_a_folder_inside_the_repository_is_refused(repository):
    command = [sys.executable, "benchmarks/full_size.py", "results/full_size"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is inside the repository: name a folder outside it" in done.stderr
    assert not (repository / "results/full_size").exists()
