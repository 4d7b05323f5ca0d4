import re

import pytest
import yaml

OLDER = ["4.40.1", "4.44.2", "4.45.2"]
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
    assert {path.stem for path in (repository / "envs").glob("*.lock")} == set(NAMES)
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


@pytest.mark.parametrize("version", OLDER)
def test_an_older_environment_has_all_that_the_workflow_needs_and_differs_in_few_versions(repository, version):
    name = f"transformers-{version}"
    assert f"transformers=={version}" in locked(repository, name)
    assert packages(direct(repository, "gpu")) | {"pytest", "hypothesis"} == packages(direct(repository, name))
    here = {pin.split("==")[0].lower() for pin in locked(repository, name) - locked(repository, "test")}
    assert here == {"accelerate", "bitsandbytes", "huggingface_hub", "tokenizers", "transformers"}
