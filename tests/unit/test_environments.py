import re

import pytest
import yaml

from workflow.lib import environments
from workflow.lib.errors import BadInput

OLDER = ["4.31.0", "4.40.1", "4.44.2", "4.45.2"]
# what mPLUG-Owl2's code and its tokenizer ask for besides
MORE = {"4.31.0": {"icecream", "protobuf", "sentencepiece"}}
NAMES = ["cpu", "test", "gpu", *(f"transformers-{version}" for version in OLDER)]


def pins(text):
    return set(re.findall(r"^\s*-?\s*([A-Za-z0-9_.-]+==[A-Za-z0-9_.]+)$", text, flags=re.MULTILINE))


def direct(repository, name):
    return yaml.safe_load((repository / f"envs/{name}.yaml").read_text())["dependencies"][-1]["pip"]


def locked(repository, name):
    return pins((repository / f"envs/{name}.lock").read_text())


def packages(found):
    return {pin.split("==")[0].lower() for pin in found}


def test_every_environment_is_checked_here(repository):
    # slurm.lock is put on top of another one
    assert {path.stem for path in (repository / "envs").glob("*.lock")} == {*NAMES, "slurm"}
    assert {path.stem for path in (repository / "envs").glob("*.yaml")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_direct_pin_is_exact_and_in_the_lock(repository, name):
    listed = direct(repository, name)
    assert len(pins("\n".join(listed))) == len(listed) > 5
    text = (repository / f"envs/{name}.lock").read_text()
    assert {pin.lower() for pin in listed} <= {pin.lower() for pin in pins(text)}
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line) for line in lines)


@pytest.mark.parametrize("name", ["test", "gpu"])
def test_the_other_environments_contain_that_of_the_cpu(repository, name):
    assert locked(repository, "cpu") < locked(repository, name)


def test_the_cluster_adds_to_the_others_and_contradicts_nothing(repository):
    lines = (repository / "envs/slurm.lock").read_text().splitlines()
    added = locked(repository, "slurm")
    assert len(added) == len([line for line in lines if not line.startswith("#")]) > 0
    assert "snakemake-executor-plugin-slurm" in packages(added)
    for name in NAMES:
        assert not packages(added) & packages(locked(repository, name))


@pytest.mark.parametrize("version", OLDER)
def test_an_older_environment_has_all_that_the_workflow_needs_and_differs_in_few_versions(repository, version):
    name = f"transformers-{version}"
    assert f"transformers=={version}" in locked(repository, name)
    more = MORE.get(version, set())
    assert packages(direct(repository, "gpu")) | {"pytest", "hypothesis"} | more == packages(direct(repository, name))
    both = packages(locked(repository, name)) & packages(locked(repository, "test"))
    here = {pin.split("==")[0].lower() for pin in locked(repository, name) - locked(repository, "test")}
    assert here & both == {"accelerate", "huggingface_hub", "tokenizers", "transformers"}


def test_a_model_may_name_any_environment_but_that_of_the_tests(repository):
    schema = yaml.safe_load((repository / "workflow/schemas/config.schema.yaml").read_text())
    model = schema["properties"]["models"]["additionalProperties"]["properties"]
    assert set(model["environment"]["enum"]) == set(NAMES) - {"test"}


def test_a_job_under_another_transformers_is_refused_with_both_versions_and_what_to_do():
    wanted = {"name": "transformers-4.40.1", "transformers": "4.40.1"}
    environments.check("llava15", wanted, "4.40.1")
    environments.check("llava15", None, "5.24.0")
    with pytest.raises(BadInput) as refused:
        environments.check("llava15", wanted, "5.24.0")
    sentence = str(refused.value)
    assert sentence.startswith(
        "model llava15 is run in environment transformers-4.40.1, which has transformers 4.40.1,"
    )
    for part in ("transformers 5.24.0 is installed", "-r envs/transformers-4.40.1.lock", "deployment-method conda"):
        assert part in sentence


def test_the_adapter_follows_the_version():
    assert environments.adapter_module("llava", "5.24.0") == "workflow.models.llava"
    assert environments.adapter_module("llava", "4.40.1") == "workflow.models.older.llava"
    assert environments.adapter_module("llava", "10.0.0") == "workflow.models.llava"
    assert environments.adapter_module("qwen2_vl", "4.45.2") == "workflow.models.older.qwen2_vl"
    with pytest.raises(BadInput, match=r"transformers 4\.44\.2 does not have the model family qwen2_vl"):
        environments.adapter_module("qwen2_vl", "4.44.2")


def test_what_needs_transformers_5_is_refused_before():
    environments.need_current("the engine shared_prefix", "5.24.0")
    with pytest.raises(BadInput, match=r"the engine shared_prefix needs transformers 5 .* and 4\.45\.2 is"):
        environments.need_current("the engine shared_prefix", "4.45.2")
