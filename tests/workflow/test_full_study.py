"""The full study from end to end on tiny stand-ins: fetched from a local server, run, shared and planned."""

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from io import BytesIO

import nbclient
import nbformat
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data_hosts import LASTING, Hosts, describe_sources, serving
from workflow.lib import files, logits, signal_parts

from .conftest import Checkout, fresh
from .test_refusals import change_identity

OVERLAYS = ["workflow/studies/full.yaml", "tests/workflow/tiny_full.yaml"]
REVISION = "9b5410653a70098c433574841a1804b89f573575"
MODEL = "llava-hf/llava-1.5-7b-hf"
PINNED = "b234b804b114d9e37bb655e11cbbb5f5e971b7a9"
SPLITS = ["popular", "random"]
SHARD = "results/full/logits/llava15/random/0.parquet"
MERGED = "results/full/logits/llava15/random.parquet"
SOURCES = "workflow/sources.csv"
COCO = "s3.amazonaws.com/images.cocodataset.org/val2014"


class FullCheckout(Checkout):
    """A checkout whose commands run the tiny full study against the local server."""

    def __init__(self, folder, hosts):
        super().__init__(folder)
        self.hosts = hosts

    def command(self, *arguments, overlay=None):
        # targets come first: --configfile takes all that follows it up to the next option
        command = super().command()
        return [*command[: command.index("--cores")], *arguments, "--cores", "2", "--configfile", *OVERLAYS]

    def environment(self):
        kept = {name: value for name, value in super().environment().items() if not name.lower().endswith("_proxy")}
        return kept | {"HF_ENDPOINT": self.hosts.url, "READOUT_AUDIT_MIRROR": self.hosts.url}

    def copy(self, folder):
        return FullCheckout(super().copy(folder).folder, self.hosts)


def image_files(results):
    """The mini study's pictures as JPEG files under the names that its questions get here."""
    for path in sorted((results / "scenes/images").glob("*.png")):
        stream = BytesIO()
        Image.open(path).convert("RGB").save(stream, "JPEG", quality=95)
        yield f"{path.stem}.jpg", stream.getvalue()


@pytest.fixture(scope="module")
def hosts(repository, tmp_path_factory):
    """The hub with the mini study's checkpoint, and the data hosts with its questions and pictures."""
    mini = fresh(repository, tmp_path_factory.mktemp("stand-ins") / "checkout")
    mini.build("results/checkpoints/llava15/checkpoint.json", "results/scenes/images.csv")
    served, results = Hosts(), mini.path("results")
    checkpoint = results / "checkpoints/llava15"
    served.repositories[("model", MODEL, PINNED)] = {
        path.relative_to(checkpoint).as_posix(): path.read_bytes()
        for path in checkpoint.rglob("*")
        if path.is_file() and path.name != "checkpoint.json"
    }
    for split in ("adversarial", "popular", "random"):
        body = (results / f"scenes/pope_mini_{split}.json").read_text().replace(".png", ".jpg").encode()
        name = f"raw.githubusercontent.com/RUCAIBox/POPE/{REVISION}/output/coco/coco_pope_{split}.json"
        served.addresses[name] = body
    for name, body in image_files(results):
        served.addresses[f"{COCO}/{name}"] = body
    with serving(served):
        yield served


@pytest.fixture(scope="module")
def full_built(repository, hosts, tmp_path_factory):
    checkout = FullCheckout(fresh(repository, tmp_path_factory.mktemp("full") / "checkout").folder, hosts)
    describe_sources(checkout.path(SOURCES), hosts, MODEL)
    ran = checkout.build(MERGED, "results/full/logits/llava15/popular.parquet")
    assert ran == Counter(
        fetch_questions=2, build_items=2, fetch_images=1, fetch_checkpoint=1, infer_shard=4, merge_shards=2
    )
    return checkout


@pytest.fixture
def full(full_built, tmp_path, hosts):
    hosts.faults.clear()
    return full_built.copy(tmp_path / "checkout")


@pytest.fixture
def bare(repository, tmp_path, hosts):
    """A checkout in which nothing was fetched."""
    hosts.faults.clear()
    checkout = FullCheckout(fresh(repository, tmp_path / "bare").folder, hosts)
    describe_sources(checkout.path(SOURCES), hosts, MODEL)
    return checkout


def refused(checkout, sentence, *arguments):
    done = checkout.run(*arguments)
    output = done.stdout + done.stderr
    assert done.returncode != 0 and re.search(sentence, output), output[-3000:]
    assert "Traceback" not in output, output[-3000:]


# ---- the way of the data ----


def test_every_overlay_reaches_every_shard(full_built):
    identity = logits.read(full_built.path(MERGED)).identity
    assert identity["study"] == "full" and identity["revision"] == PINNED and identity["dataset"] == "pope-coco"
    manifest = files.read_json(full_built.path("results/full/checkpoints/llava15/checkpoint.json"))
    assert manifest["revision"] == PINNED and "model.safetensors" in manifest["files"]
    table = full_built.path("results/full/images/images.csv").read_text().splitlines()
    assert len(table) == 9 and table[0] == "image,sha256"
    assert not list(full_built.path("results/full").rglob(".*.part"))


def test_a_second_run_and_a_deleted_download_run_nothing_again(full):
    targets = [MERGED, "results/full/logits/llava15/popular.parquet"]
    assert not full.planned(*targets)
    # fetched again: newer, but the same
    later = time.time() + 60
    os.utime(full.path("results/full/checkpoints/llava15/checkpoint.json"), (later, later))
    os.utime(full.path("results/full/images/images.csv"), (later, later))
    assert not full.planned(*targets)
    shutil.rmtree(full.path("results/full/checkpoints"))
    shutil.rmtree(full.path("results/full/images"))
    full.hosts.asked.clear()
    assert not full.build(*targets)
    assert not full.hosts.asked


def test_another_revision_is_fetched_and_run(full):
    planned = full.planned(MERGED, "--config", "models={llava15: {revision: " + "1" * 40 + "}}")
    assert planned["fetch_checkpoint"] == 1 and planned["infer_shard"] == 2


def test_a_deleted_checkpoint_comes_back_and_finished_shards_stay(full):
    targets = [MERGED, "results/full/logits/llava15/popular.parquet"]
    finished = [
        path for path in full.path("results/full/logits/llava15").rglob("?.parquet") if path != full.path(SHARD)
    ]
    written = {path: path.stat().st_mtime_ns for path in finished}
    folder, kept = full.path("results/full/checkpoints/llava15"), full.path("results/full/checkpoints/llava15.json")
    shutil.rmtree(folder)
    full.path(SHARD).unlink()
    # a host that fails takes nothing away
    full.hosts.faults[f"/{MODEL}/resolve/{PINNED}/model.safetensors"] = ["other"] * LASTING
    refused(full, "model.safetensors: the answer of .* has SHA-256", *targets)
    assert kept.is_file() and not (folder / "checkpoint.json").exists()
    full.hosts.faults.clear()
    assert full.build(*targets) <= Counter(infer_shard=1, merge_shards=1)
    assert full.path(SHARD).is_file() and (folder / "checkpoint.json").read_bytes() == kept.read_bytes()
    assert {path: path.stat().st_mtime_ns for path in finished} == written
    # nor is it fetched where no shard is asked for
    shutil.rmtree(folder)
    full.hosts.asked.clear()
    assert full.build(*targets) <= Counter(merge_shards=1)
    assert not folder.exists() and not full.hosts.asked


def test_a_changed_checkpoint_runs_its_shards_again(full, monkeypatch):
    folder, kept = full.path("results/full/checkpoints/llava15"), full.path("results/full/checkpoints/llava15.json")
    shutil.rmtree(folder)
    other = full.planned(MERGED, "--config", "models={llava15: {revision: " + "1" * 40 + "}}")
    assert other["fetch_checkpoint"] == 1 and other["infer_shard"] == 2
    # other files under the same revision: nothing is merged of both, and the choice is named
    served = full.hosts.repositories[("model", MODEL, PINNED)]
    settings = served["generation_config.json"].replace(b"}", b', "top_k": 1}')
    monkeypatch.setitem(served, "generation_config.json", settings)
    full.path(SHARD).unlink()
    refused(full, "holds another generation_config.json than .*llava15.json names, .* or delete", MERGED)
    assert not full.path(SHARD).exists()
    kept.unlink()
    assert full.build(MERGED) == Counter(fetch_checkpoint=1, infer_shard=2, merge_shards=1)


def test_a_missing_image_names_its_questions_and_stops_before_inference(bare, hosts):
    hosts.faults[f"/{COCO}/SCENE_000000000008.jpg"] = ["gone"] * LASTING
    refused(bare, r"answered 404 .*questions popular 43, popular 44, .*random 48 need SCENE_000000000008.jpg", SHARD)
    assert not bare.path("results/full/images/images.csv").exists()
    hosts.faults.clear()
    hosts.asked.clear()
    bare.build("results/full/images/images.csv")
    assert [path for _, path, _ in hosts.asked] == [f"/{COCO}/SCENE_000000000008.jpg"]


@pytest.mark.parametrize(
    ("target", "path", "fault", "sentence"),
    [
        (
            "results/full/items/random.parquet",
            f"/raw.githubusercontent.com/RUCAIBox/POPE/{REVISION}/output/coco/coco_pope_random.json",
            "html",
            "coco_pope_random.json: the answer of the server is an HTML page",
        ),
        (
            "results/full/checkpoints/llava15/checkpoint.json",
            f"/{MODEL}/resolve/{PINNED}/model.safetensors",
            "other",
            "model.safetensors: the answer of .* has SHA-256",
        ),
    ],
)
def test_a_host_that_sends_something_else(bare, hosts, target, path, fault, sentence):
    hosts.faults[path] = [fault] * LASTING
    refused(bare, sentence, target)
    assert not bare.path(target).exists()


def test_offline_names_what_is_missing_and_asks_nobody(bare, hosts):
    hosts.asked.clear()
    refused(
        bare,
        r"coco_pope_\w+.json of revision 9b54106 is missing and offline is true",
        SHARD,
        "--config",
        "offline=true",
    )
    refused(
        bare,
        f"config.json is missing in results/full/checkpoints/llava15, and offline is true: put the files of {MODEL}",
        "results/full/checkpoints/llava15/checkpoint.json",
        "--config",
        "offline=true",
    )
    assert not hosts.asked


# ---- shards of other machines ----


def exported(checkout, folder):
    """The four shards as another machine would send them."""
    folder.mkdir()
    for split in SPLITS:
        for number in range(2):
            target = folder / f"llava15-{split}-{number}.parquet"
            shutil.copy2(checkout.path(f"results/full/logits/llava15/{split}/{number}.parquet"), target)
            seal(target)
    return folder


def seal(path):
    path.with_name(path.name + ".sha256").write_text(f"{files.sha256(path)}  {path.name}\n")


def place(checkout, folder):
    return checkout.run("import_shards", "--config", f"shards={folder}")


def test_imported_shards_are_merged_without_a_model_and_never_run_again(full, bare, tmp_path):
    folder = exported(full, tmp_path / "shards")
    done = place(bare, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not bare.path("results/full/checkpoints").exists() and not bare.path("results/full/images").exists()
    targets = [MERGED, "results/full/logits/llava15/popular.parquet"]
    assert bare.build(*targets) == Counter(merge_shards=2)
    for name in targets:
        assert pq.read_table(bare.path(name)).equals(pq.read_table(full.path(name)))
    assert not bare.planned(*targets)
    # what inference needs is fetched later, for other shards: those that came from elsewhere stay
    bare.build("results/full/checkpoints/llava15/checkpoint.json", "results/full/images/images.csv")
    assert not bare.planned(*targets)
    # and again with a folder named
    assert place(bare, folder).returncode == 0
    assert not bare.planned(*targets)
    # a setting that moves logits reruns no shard of another machine, but the merge refuses it by name
    refused(bare, "made with seed 42 where the configuration says 43", MERGED, "--config", "seed=43")


def test_shards_of_signals_and_of_noise_are_taken_too(full, bare, tmp_path):
    signal = "results/full/signal_shards/llava15/random/0.parquet"
    noise = [f"results/full/noise/random_image/llava15/random/{number}.parquet" for number in range(2)]
    assert full.build(signal, *noise) == Counter(infer_signals=1, infer_noise=2)
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, name in enumerate([signal, *noise]):
        shutil.copy2(full.path(name), folder / f"{number}.parquet")
        seal(folder / f"{number}.parquet")
    change_identity(folder / "0.parquet", measured={"band": [0]})
    seal(folder / "0.parquet")
    refused(bare, r"made with measured.band \[0\] where the conf", "import_shards", "--config", f"shards={folder}")
    change_identity(folder / "0.parquet", measured=signal_parts.load(full.path(signal)).identity["measured"])
    seal(folder / "0.parquet")
    change_identity(folder / "2.parquet", engine="reference with random_image noise, seed 7")
    seal(folder / "2.parquet")
    refused(
        bare,
        "made with engine 'reference with random_image noise, seed 7'",
        "import_shards",
        "--config",
        f"shards={folder}",
    )
    assert not bare.path("results/full/noise").exists()
    shutil.copy2(full.path(noise[1]), folder / "2.parquet")
    seal(folder / "2.parquet")
    assert place(bare, folder).returncode == 0
    assert not bare.planned(signal, *noise)
    merged = "results/full/noise/random_image/llava15/random.parquet"
    assert bare.build(merged) == Counter(merge_noise=1)
    # what inference needs is fetched later: nothing of another machine is run again
    bare.build("results/full/checkpoints/llava15.json", "results/full/images/images.csv")
    assert not bare.planned(signal, merged)


def test_a_shard_that_ran_here_before_is_not_run_again_after_the_import(full, tmp_path):
    folder = exported(full, tmp_path / "shards")
    full.path(SHARD).unlink()
    assert place(full, folder).returncode == 0
    assert not full.planned(SHARD)
    assert full.build(MERGED) <= Counter(merge_shards=1)
    # deleted, it is run here like any other
    full.path(SHARD).unlink()
    assert full.planned(SHARD) == Counter(infer_shard=1)


def test_a_missing_shard_alone_is_run_here(full, bare, tmp_path):
    folder = exported(full, tmp_path / "shards")
    (folder / "llava15-random-1.parquet").unlink()
    assert place(bare, folder).returncode == 0
    ran = bare.build(MERGED)
    assert ran == Counter(fetch_checkpoint=1, fetch_images=1, infer_shard=1, merge_shards=1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"revision": "1" * 40}, f"made with revision '{'1' * 40}' where the configuration says '{PINNED}'"),
        ({"quantisation": "nf4"}, "made with quantisation 'nf4' where the configuration says 'none'"),
        ({"template": "paper"}, "made with template 'paper'"),
        ({"shards": 3}, "made with shards 3 where the configuration says 2"),
        ({"dataset_sha256": "x"}, "made with dataset_sha256 'x'"),
        ({"device_name": "another GPU"}, "do not belong together .device_name: "),
        ({"model": "llava51"}, "model 'llava51' is not in run.models"),
        ({"shard": 0}, "row 0: id 25 where 1 is asked in shard 0 of 2|is one of two files for"),
    ],
)
def test_a_foreign_shard_is_refused_by_field_and_nothing_is_placed(full, bare, tmp_path, changes, sentence):
    folder = exported(full, tmp_path / "shards")
    change_identity(folder / "llava15-random-1.parquet", **changes)
    seal(folder / "llava15-random-1.parquet")
    refused(bare, sentence, "import_shards", "--config", f"shards={folder}")
    assert not bare.path("results/full/logits").exists()


def test_damaged_shards_are_refused(full, bare, tmp_path):
    folder = exported(full, tmp_path / "shards")
    shard = folder / "llava15-popular-0.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    refused(bare, "has SHA-256 .* stands beside it: copy it again", "import_shards", "--config", f"shards={folder}")
    seal(shard)
    refused(bare, "is not a whole Parquet file", "import_shards", "--config", f"shards={folder}")
    shard.write_bytes(whole)
    shard.with_name(shard.name + ".sha256").unlink()
    refused(bare, "has no llava15-popular-0.parquet.sha256 beside it", "import_shards", "--config", f"shards={folder}")
    refused(bare, "holds no .*parquet file", "import_shards", "--config", f"shards={bare.path('profiles')}")
    refused(bare, "name one with --config shards=FOLDER", "import_shards")
    assert not bare.path("results/full/logits").exists()


def test_a_shard_that_is_there_already_is_not_replaced(full, tmp_path):
    folder = exported(full, tmp_path / "shards")
    assert "(there already)" in place(full, folder).stderr
    table = pq.read_table(folder / "llava15-random-1.parquet")
    pq.write_table(table, folder / "llava15-random-1.parquet", compression="none")
    seal(folder / "llava15-random-1.parquet")
    refused(
        full, "is not the .*random/1.parquet that is there already", "import_shards", "--config", f"shards={folder}"
    )


# ---- cost before work ----


def test_the_plan_counts_shards_and_takes_speeds_from_done_ones(full):
    full.path(SHARD).unlink()
    done = full.run("plan")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"llava15 +random +2 +1 +1 +24\n", done.stdout)
    assert re.search(r"llava15 +popular +2 +2 +0 +0\n", done.stdout)
    assert "median of 3 done files" in done.stdout
    assert re.search(rf"{MODEL} +14.1  here", done.stdout)
    assert full.planned("plan") == Counter(plan=1)


def test_the_plan_of_the_real_study_and_its_dry_run(repository, tmp_path):
    checkout = fresh(repository, tmp_path / "checkout")
    overlay = "workflow/studies/full.yaml"
    done = checkout.run("plan", overlay=overlay)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"llava15 +0\.508 +1\.27 .*RTX 3070 Ti", done.stdout)
    assert re.search(r"qwen2_vl +unknown +unknown", done.stdout)
    assert "download ahead about 96 GB" in done.stdout
    done = checkout.run("--dry-run", "results/full/tables/table4.csv", overlay=overlay)
    assert done.returncode == 0 and re.search(r"infer_shard +90\n", done.stdout + done.stderr)


# ---- a notebook of somebody else ----


def test_the_notebook_leaves_a_shard_that_can_be_imported(full, bare, hosts, tmp_path, monkeypatch):
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=bare.folder, check=True)
    book = nbformat.read(bare.path("notebooks/kaggle_shard.ipynb"), as_version=4)
    parameters = next(cell for cell in book.cells if "parameters" in cell.metadata.get("tags", []))
    parameters.source += (
        f"\nREPOSITORY, CLONE, OUT = {str(bare.folder)!r}, {str(tmp_path / 'clone')!r}, {str(tmp_path / 'out')!r}\n"
        f"OVERLAYS, REQUIREMENTS = {OVERLAYS!r}, []\n"
        "SHARDS += ['signal_shards/llava15/random/1.parquet']\n"
    )
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", hosts.url)
    monkeypatch.setenv("READOUT_AUDIT_MIRROR", hosts.url)
    monkeypatch.delenv("READOUT_AUDIT_WARM_PROCESS", raising=False)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    left = tmp_path / "out/logits-llava15-random-0.parquet"
    ours = pq.read_table(full.path(SHARD)).drop_columns(["seconds"])
    assert pq.read_table(left).drop_columns(["seconds"]).equals(ours)
    assert place(bare, tmp_path / "out").returncode == 0
    assert not bare.planned(SHARD, "results/full/signal_shards/llava15/random/1.parquet")


def test_the_notebook_in_the_repository_holds_no_output(repository):
    book = files.read_json(repository / "notebooks/kaggle_shard.ipynb")
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in book["cells"])
