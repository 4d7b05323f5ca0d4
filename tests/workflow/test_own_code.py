"""A model of the full study whose repository holds no code: mPLUG-Owl2 from a local server, run and refused."""

import csv
import shutil
from collections import Counter

import pytest

from tests.data_hosts import LASTING, Hosts, describe_sources, serving
from workflow.lib import files, logits, sources

from .conftest import fresh
from .test_full_study import COCO, REVISION, FullCheckout, image_files, refused

OWL = "MAGAer13/mplug-owl2-llama2-7b"
PINNED = "200342bbdd0eef019b02b4d7c9b17df235bba4ad"
CODE = "9a28b3b1636a942ca1f1415fd8d2209a7afaf986"
PACKAGE = f"raw.githubusercontent.com/X-PLUG/mPLUG-Owl/{CODE}/mPLUG-Owl2/mplug_owl2"
SHARD = "results/full/logits/mplug_owl2/random/0.parquet"
CHECKPOINT = "results/full/checkpoints/mplug_owl2/checkpoint.json"
ALLOWED = ["--config", "run={models: [mplug_owl2]}", "models={mplug_owl2: {remote_code: true, environment: cpu}}"]


@pytest.fixture(scope="module")
def hosts(repository, tmp_path_factory):
    """The hub with a mini checkpoint's weights, and its code where the authors publish theirs."""
    mini = fresh(repository, tmp_path_factory.mktemp("stand-ins") / "checkout")
    mini.build("results/checkpoints/mplug_owl2/checkpoint.json", "results/scenes/images.csv", *ALLOWED[:2])
    served, folder = Hosts(), mini.path("results/checkpoints/mplug_owl2")
    held = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    served.repositories[("model", OWL, PINNED)] = {
        path: body for path, body in held.items() if path != "checkpoint.json" and not path.startswith("code/")
    }
    for path, body in held.items():
        if path.startswith("code/mplug_owl2/"):
            served.addresses[f"{PACKAGE}/{path.removeprefix('code/mplug_owl2/')}"] = body
    for split in ("popular", "random"):
        body = mini.path(f"results/scenes/pope_mini_{split}.json").read_text().replace(".png", ".jpg").encode()
        served.addresses[f"raw.githubusercontent.com/RUCAIBox/POPE/{REVISION}/output/coco/coco_pope_{split}.json"] = (
            body
        )
    served.addresses |= {f"{COCO}/{name}": body for name, body in image_files(mini.path("results"))}
    with serving(served):
        yield served


@pytest.fixture
def bare(repository, tmp_path, hosts):
    """A checkout in which nothing was fetched, whose table of sources lists the stand-in's code."""
    hosts.faults.clear()
    hosts.asked.clear()
    checkout = FullCheckout(fresh(repository, tmp_path / "bare").folder, hosts)
    path = checkout.path("workflow/sources.csv")
    describe_sources(path, hosts, OWL)
    with open(path, newline="") as stream:
        rows = list(csv.DictReader(stream))
    pattern = next(row for row in rows if row["name"].startswith(sources.CODE))
    rows = [row for row in rows if not row["name"].startswith(sources.CODE)]
    for address in hosts.addresses:
        if address.startswith(PACKAGE):
            file = address.removeprefix(f"{PACKAGE}/")
            name = f"{sources.CODE}X-PLUG/mPLUG-Owl/{CODE}/mplug_owl2/{file}"
            rows.append(pattern | {"name": name, "url": f"https://{address}"})
    with open(path, "w", newline="") as stream:
        writer = csv.DictWriter(stream, sources.COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["name"]))
    return checkout


def test_without_consent_nothing_is_fetched(bare, hosts):
    sentence = rf"set models\.mplug_owl2\.remote_code to true if you trust revision {CODE}"
    refused(bare, sentence, CHECKPOINT, *ALLOWED[:2])
    assert not hosts.asked and not bare.path(CHECKPOINT).exists()


def test_code_from_elsewhere_is_fetched_and_run(bare, hosts):
    hosts.faults[f"/{PACKAGE}/modeling_mplug_owl2.py"] = ["cut"]
    ran = bare.build(SHARD, *ALLOWED)
    assert ran == Counter(fetch_questions=2, build_items=2, fetch_images=1, fetch_checkpoint=1, infer_shard=1)
    manifest = files.read_json(bare.path(CHECKPOINT))
    modelling = "code/mplug_owl2/modeling_mplug_owl2.py"
    assert manifest["revision"] == PINNED and {modelling, "model.safetensors"} < set(manifest["files"])
    found = logits.read(bare.path(SHARD))
    assert found.identity["checkpoint"] == files.sha256(bare.path(CHECKPOINT)) and found.table.num_rows == 24
    # the code is part of what the shard was made from
    path = bare.path(f"results/full/checkpoints/mplug_owl2/{modelling}")
    path.write_text(path.read_text() + "\n")
    bare.path(SHARD).unlink()
    refused(bare, "modeling_mplug_owl2.py is missing or is not the file that", SHARD, *ALLOWED)
    # a deleted checkpoint comes back with its code
    shutil.rmtree(bare.path("results/full/checkpoints/mplug_owl2"))
    assert bare.build(SHARD, *ALLOWED) == Counter(infer_shard=1)
    again = logits.read(bare.path(SHARD))
    assert path.is_file() and again.identity["checkpoint"] == found.identity["checkpoint"]


def test_a_host_that_sends_a_page_for_code(bare, hosts):
    hosts.faults[f"/{PACKAGE}/modeling_mplug_owl2.py"] = ["html"] * LASTING
    refused(bare, r"modeling_mplug_owl2.py: the answer of .* is an HTML page", CHECKPOINT, *ALLOWED)
    assert not bare.path(CHECKPOINT).exists()
