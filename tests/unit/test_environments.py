import re

import pytest
import yaml


def pins(text):
    return set(re.findall(r"^\s*-?\s*([A-Za-z0-9_.-]+==[A-Za-z0-9_.]+)$", text, flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["cpu", "test", "gpu"])
def test_every_direct_pin_is_exact_and_in_the_lock(repository, name):
    listed = yaml.safe_load((repository / f"envs/{name}.yaml").read_text())["dependencies"][-1]["pip"]
    direct = pins("\n".join(listed))
    assert len(direct) == len(listed) > 5
    locked = (repository / f"envs/{name}.lock").read_text()
    assert {pin.lower() for pin in direct} <= {pin.lower() for pin in pins(locked)}
    lines = [line for line in locked.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line) for line in lines)


@pytest.mark.parametrize("name", ["test", "gpu"])
def test_the_other_environments_contain_that_of_the_cpu(repository, name):
    both = [pins((repository / f"envs/{which}.lock").read_text()) for which in ("cpu", name)]
    assert both[0] < both[1]
