"""The environments with older versions of transformers, made from their locks: adapters, and shards from end to end."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest

from tests import hub_layout
from tests.data_hosts import Hosts, describe_sources
from tests.workflow.conftest import Checkout, fresh, jobs
from workflow.lib import logits
from workflow.lib.scenes import NAMES
from workflow.models import warm

pytestmark = pytest.mark.nightly

VERSIONS = {"4.40.1": 3, "4.44.2": 3, "4.45.2": 4}
"""Versions, and how many families each knows."""
OVERLAYS = ["workflow/studies/full.yaml", "tests/workflow/tiny_full.yaml"]
MODEL = "llava-hf/llava-1.5-7b-hf"
REVISION = "9b5410653a70098c433574841a1804b89f573575"
IMAGES = 8
MERGED = "results/full/logits/llava15/random.parquet"
SHARDS = [f"results/full/logits/llava15/random/{number}.parquet" for number in range(2)]


@pytest.fixture(scope="module", params=VERSIONS)
def environment(request, repository, tmp_path_factory):
    """A virtual environment made from the lock of one version; its Python."""
    folder = tmp_path_factory.mktemp("environments") / request.param
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    lock = repository / f"envs/transformers-{request.param}.lock"
    subprocess.run([folder / "bin/pip", "install", "--quiet", "-r", lock], check=True)
    yield request.param, folder / "bin/python"
    shutil.rmtree(folder)


def test_the_lock_is_what_gets_installed(environment, repository):
    version, python = environment
    found = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    listed = {line.split("+")[0].lower() for line in found.splitlines()}
    lock = (repository / f"envs/transformers-{version}.lock").read_text().splitlines()
    assert listed == {line.lower() for line in lock if line and not line.startswith("#")}
    subprocess.run([python, "-m", "pip", "check"], check=True)


def test_adapters_pass_the_same_tests(environment, repository, tmp_path):
    version, python = environment
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", "tests/unit/test_families.py"],
        cwd=repository,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None]
    families = {name for name in hub_layout.FAMILIES if any(f"[{name}" in case.get("name") for case in ran)}
    assert len(families) == VERSIONS[version]
    # 13 tests of each family, their templates and cases among them, at the least
    assert len(ran) >= 13 * VERSIONS[version]
    print(f"transformers {version}: {len(ran)} passed, {len(cases) - len(ran)} skipped, {sorted(families)}")


class OlderCheckout(Checkout):
    """A checkout of the tiny full study whose data lie in a local folder, run by any Python."""

    def __init__(self, folder, data, version):
        super().__init__(folder)
        self.data, self.version = data, version

    def older(self, python, *arguments, environment=None):
        """Run snakemake by a Python of choice, the model in the older environment unless another is named."""
        name = environment or f"transformers-{self.version}"
        settings = [f"local_folder={self.data}", "offline=true", f"models={{llava15: {{environment: {name}}}}}"]
        command = [python, "-m", "snakemake", *arguments, "--cores", "1", "--configfile", *OVERLAYS, "--config"]
        kept = {key: value for key, value in os.environ.items() if key != warm.ADDRESS}
        return subprocess.run(
            [*map(str, command), *settings], cwd=self.folder, env=kept, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def checkout(environment, repository, tmp_path_factory):
    """The audited model in its hub layout, eight images and their questions, as copies in a local folder."""
    root = tmp_path_factory.mktemp("study")
    data = root / "data"
    hub_layout.build("llava", data / MODEL)
    hosts = Hosts()
    (data / "val2014").mkdir(parents=True)
    names = [f"COCO_val2014_{number:012}.jpg" for number in range(1, IMAGES + 1)]
    for number, name in enumerate(names):
        hub_layout.picture(number).save(data / "val2014" / name, "JPEG", quality=95)
    for split in ("adversarial", "popular", "random"):
        rows = [
            {
                "question_id": 6 * place + number + 1,
                "image": image,
                "text": f"Is there a {NAMES[(place + number) % len(NAMES)]} in the image?",
                "label": ("yes", "no")[number % 2],
            }
            for place, image in enumerate(names)
            for number in range(6)
        ]
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (data / f"coco_pope_{split}.json").write_bytes(body)
        url = f"raw.githubusercontent.com/RUCAIBox/POPE/{REVISION}/output/coco/coco_pope_{split}.json"
        hosts.addresses[url] = body
    made = OlderCheckout(fresh(repository, root / "checkout").folder, data, environment[0])
    describe_sources(made.path("workflow/sources.csv"), hosts, MODEL)
    return made


def test_shards_of_an_older_environment_are_merged_here_and_not_run_again(environment, checkout):
    version, python = environment
    here = sys.executable
    refused = checkout.older(here, SHARDS[0])
    output = refused.stdout + refused.stderr
    assert refused.returncode != 0 and "Traceback" not in output, output
    assert (
        f"model llava15 is run in environment transformers-{version}, which has transformers {version}, but" in output
    )
    done = checkout.older(python, *SHARDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert jobs(done) == Counter(infer_shard=2)
    done = checkout.older(here, MERGED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert jobs(done) == Counter(merge_shards=1)
    assert jobs(checkout.older(here, "--dry-run", MERGED)) == Counter()
    assert jobs(checkout.older(python, "--dry-run", MERGED)) == Counter()
    merged = logits.read(checkout.path(MERGED))
    assert merged.identity["libraries"]["transformers"] == version
    assert merged.table.num_rows == 6 * IMAGES and set(merged.table["image_tokens"].to_pylist()) == {16}
    # moved to another environment the model is run again, and is not refused there
    planned = checkout.older(here, "--dry-run", MERGED, environment="cpu")
    assert jobs(planned) == Counter(infer_shard=2, merge_shards=1)


def test_an_older_environment_refuses_the_shared_engine_before_inference(environment, checkout):
    _, python = environment
    checkout.edit("tests/workflow/tiny_full.yaml", "run:\n", 'run:\n  engine: "shared_prefix"\n')
    done = checkout.older(python, SHARDS[0].replace("random", "popular"))
    output = done.stdout + done.stderr
    assert done.returncode != 0 and "the engine shared_prefix (run.engine) needs transformers 5 or later" in output
    assert "Traceback" not in output
