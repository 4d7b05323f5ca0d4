"""Questions, images and checkpoints from a local server that plays the hub and the data hosts."""

import hashlib
import json
import os
import struct
import zipfile
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.data_hosts import LASTING, Hosts, serving
from workflow.lib import coco_images, downloads, files, items, sources
from workflow.lib.errors import BadInput
from workflow.models import fetching, hub

REVISION = "0123456789abcdef0123456789abcdef01234567"
QUICK = {"pause": 0, "attempts": 2}
NAMES = ["COCO_val2014_000000000001.jpg", "COCO_val2014_000000000002.jpg"]
COCO = "images.invalid/val2014"


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def jpeg(number):
    stream = BytesIO()
    Image.effect_noise((40, 40), 50 + number).convert("RGB").save(stream, "JPEG")
    return stream.getvalue()


PICTURES = {name: jpeg(number) for number, name in enumerate(NAMES)}


def safetensors(length=64):
    header = json.dumps({"w": {"dtype": "F32", "shape": [length // 4], "data_offsets": [0, length]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(length)


CHECKPOINT = {
    "config.json": b'{"model_type": "llava"}',
    "tokenizer.json": b"{}",
    "qformer_tokenizer/vocab.txt": b"a\nb\n",
    "chat_template.jinja": b"x",
    "model.safetensors.index.json": b'{"weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}',
    "model-1.safetensors": safetensors(),
    "model-2.safetensors": safetensors(128),
    "pytorch_model.bin": b"not needed",
    "modeling_own.py": b"print('own code')",
    "README.md": b"# x",
    "picture.png": b"x",
    ".gitattributes": b"x",
}
NEEDED = sorted(
    set(CHECKPOINT) - {"pytorch_model.bin", "modeling_own.py", "README.md", "picture.png", ".gitattributes"}
)


@pytest.fixture
def hosts(monkeypatch):
    # huggingface_hub waits between its own tries
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    served = Hosts()
    served.repositories[("model", "team/model", REVISION)] = dict(CHECKPOINT)
    with serving(served):
        monkeypatch.setenv(downloads.MIRROR, "")
        yield served


def fetch(hosts, folder, **ways):
    settings = {"remote_code": False, "endpoint": hosts.url} | QUICK | ways
    hub.fetch_checkpoint("llava15", "team/model", ways.pop("revision", REVISION), folder, **settings)
    return files.read_json(folder / "checkpoint.json")


# ---- checkpoints ----


def test_only_what_a_model_is_loaded_from_is_fetched(hosts, tmp_path):
    manifest = fetch(hosts, tmp_path)
    assert sorted(manifest["files"]) == NEEDED
    assert manifest["revision"] == REVISION and manifest["model_id"] == "team/model"
    for name, digest in manifest["files"].items():
        assert (tmp_path / name).read_bytes() == CHECKPOINT[name] and files.sha256(tmp_path / name) == digest
    held = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert held == {*NEEDED, "checkpoint.json"}


def test_own_code_comes_only_where_it_is_allowed_and_old_weights_only_where_there_are_no_others():
    assert "modeling_own.py" in hub.needed(list(CHECKPOINT), True)
    old = ["config.json", "pytorch_model-1-of-2.bin", "pytorch_model.bin.index.json", "training_args.bin", "x.h5"]
    assert hub.needed(old, False) == ["config.json", "pytorch_model-1-of-2.bin", "pytorch_model.bin.index.json"]
    new = ["consolidated.safetensors", "model.safetensors", "pytorch_model.bin.index.json", "merges.txt", "LICENSE.txt"]
    assert hub.needed(new, False) == ["merges.txt", "model.safetensors"]


def test_a_second_call_asks_for_the_list_alone_and_a_damaged_file_is_fetched_again(hosts, tmp_path):
    first = fetch(hosts, tmp_path)
    hosts.asked.clear()
    (tmp_path / "tokenizer.json").write_bytes(b"[]")
    (tmp_path / "model-2.safetensors").write_bytes(b"x" * len(CHECKPOINT["model-2.safetensors"]))
    assert fetch(hosts, tmp_path) == first
    assert [path.rpartition("/")[2] for _, path, _ in hosts.asked] == [
        REVISION,
        "model-2.safetensors",
        "tokenizer.json",
    ]


@pytest.mark.parametrize("fault", ["cut", "busy", "unsized", "no-range"])
def test_passing_faults_of_the_hub(hosts, tmp_path, fault):
    hosts.faults[f"/team/model/resolve/{REVISION}/model-1.safetensors"] = [fault]
    hosts.faults[f"/api/models/team/model/tree/{REVISION}"] = ["busy"]
    assert sorted(fetch(hosts, tmp_path)["files"]) == NEEDED


@pytest.mark.parametrize(
    ("fault", "message"), [("html", "is an HTML page"), ("other", "has SHA-256"), ("gone", "answered 404")]
)
def test_lasting_faults_of_the_hub_leave_no_manifest(hosts, tmp_path, fault, message):
    hosts.faults[f"/team/model/resolve/{REVISION}/model-1.safetensors"] = [fault] * LASTING
    with pytest.raises(BadInput, match=rf"model-1.safetensors.*{message}.*put the file of revision 0123456"):
        fetch(hosts, tmp_path)
    assert not (tmp_path / "checkpoint.json").exists() and not (tmp_path / "model-1.safetensors").exists()


def test_a_small_file_with_another_content_is_refused(hosts, tmp_path):
    hosts.faults[f"/team/model/resolve/{REVISION}/config.json"] = ["other"] * LASTING
    with pytest.raises(BadInput, match=r"config.json.*git object name"):
        fetch(hosts, tmp_path)


def test_the_list_of_a_repository(hosts, tmp_path):
    tree = f"/api/models/team/model/tree/{REVISION}"
    for fault, message in (("html", "cannot be listed"), ("busy", "cannot be listed"), ("gone", "no revision 0123")):
        hosts.faults[tree] = [fault] * LASTING
        with pytest.raises(BadInput, match=message) as caught:
            hub.listing("team/model", REVISION, endpoint=hosts.url)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="'main' is not 40 hex digits"):
        hub.listing("team/model", "main", endpoint=hosts.url)
    with pytest.raises(BadInput, match="cannot be listed"):
        hub.listing("team/model", REVISION, endpoint="http://127.0.0.1:9")


def test_a_hub_that_states_another_hash_than_the_one_on_file_is_refused(hosts, tmp_path):
    known = {"model-1.safetensors": hashlib.sha256(CHECKPOINT["model-1.safetensors"]).hexdigest()}
    fetch(hosts, tmp_path / "a", known=known)
    with pytest.raises(BadInput, match=r"the hub states SHA-256 .* for model-1.safetensors .*sources.csv has 0+:"):
        fetch(hosts, tmp_path / "b", known={"model-1.safetensors": "0" * 64})


def test_a_repository_without_whole_weights_is_refused(hosts, tmp_path):
    held = hosts.repositories[("model", "team/model", REVISION)]
    del held["model-2.safetensors"]
    with pytest.raises(BadInput, match=r"no whole checkpoint: model-2.safetensors, which model.safetensors.index.json"):
        fetch(hosts, tmp_path)


OWN_URL = f"https://code.invalid/team/code/{REVISION}/pkg"
OWN = {"pkg/__init__.py": b"from .model import Model\n", "pkg/model.py": b"class Model:\n    pass\n"}


def own_code(hosts, sha256="", **changes):
    """Sources of a package that lies elsewhere, served by the local hosts."""
    hosts.addresses |= {f"{OWN_URL[8:]}/{path[4:]}": body for path, body in (OWN | changes).items()}
    return {
        path: {"name": path, "url": f"{OWN_URL}/{path[4:]}", "revision": REVISION, "sha256": sha256, "bytes": None}
        for path in OWN
    }


@pytest.fixture
def mirrored(hosts, monkeypatch):
    monkeypatch.setenv(downloads.MIRROR, hosts.url)
    return hosts


def test_code_from_elsewhere_is_fetched_where_it_is_allowed(mirrored, tmp_path):
    code = own_code(mirrored)
    with pytest.raises(
        BadInput, match=r"set models\.llava15\.remote_code to true if you trust revision 0123.*code.inv"
    ):
        fetch(mirrored, tmp_path / "without", code_files=code)
    assert not mirrored.asked and not (tmp_path / "without").exists()
    found = fetch(mirrored, tmp_path / "with", code_files=code, remote_code=True)
    assert set(found["files"]) - set(NEEDED) == {"modeling_own.py", "code/pkg/__init__.py", "code/pkg/model.py"}
    for path, body in OWN.items():
        assert (tmp_path / "with/code" / path).read_bytes() == body
        assert found["files"][f"code/{path}"] == hashlib.sha256(body).hexdigest()
    # a changed file is not kept: it has no hash on file that could tell it from the original
    (tmp_path / "with/code/pkg/model.py").write_bytes(b"import os\n")
    assert fetch(mirrored, tmp_path / "with", code_files=code, remote_code=True) == found


@pytest.mark.parametrize(
    ("body", "sha256", "message"),
    [
        (b"class Model:\n    def", "", r"model.py.* is not Python code"),
        (b"<!DOCTYPE html><html></html>", "", r"model.py.* is an HTML page"),
        (OWN["pkg/model.py"], "0" * 64, r"has SHA-256 .* where 0+ is expected"),
    ],
)
def test_wrong_code_is_refused_and_leaves_no_manifest(mirrored, tmp_path, body, sha256, message):
    code = own_code(mirrored, sha256, **{"pkg/model.py": body})
    with pytest.raises(BadInput, match=message):
        fetch(mirrored, tmp_path, code_files=code, remote_code=True)
    assert not (tmp_path / "checkpoint.json").exists() and not (tmp_path / "code/pkg/model.py").exists()


def test_code_that_lies_there_offline_or_in_a_local_folder(mirrored, tmp_path):
    code = own_code(mirrored)
    online = fetch(mirrored, tmp_path / "online", code_files=code, remote_code=True)
    mirrored.asked.clear()
    folder = placed(tmp_path / "placed", **{"code/pkg/__init__.py": OWN["pkg/__init__.py"]})
    with pytest.raises(BadInput, match=rf"code/pkg/model.py is missing, and offline is true: put {OWN_URL}/model.py"):
        fetch(mirrored, folder, offline=True, code_files=code, remote_code=True)
    (folder / "code/pkg/model.py").write_bytes(OWN["pkg/model.py"])
    assert fetch(mirrored, folder, offline=True, code_files=code, remote_code=True) == online
    assert not mirrored.asked
    placed(tmp_path / "copies/team/model", **{f"code/{path}": body for path, body in OWN.items()})
    local = str(tmp_path / "copies")
    assert fetch(mirrored, tmp_path / "linked", local_folder=local, code_files=code, remote_code=True) == online
    assert not any("code.invalid" in path for _, path, _ in mirrored.asked)


def test_code_is_known_by_repository_and_revision():
    known = sources.load()
    code = {"repository": "X-PLUG/mPLUG-Owl", "revision": "9a28b3b1636a942ca1f1415fd8d2209a7afaf986"}
    found = sources.code_files(known, code)
    assert {"mplug_owl2/__init__.py", "mplug_owl2/model/modeling_mplug_owl2.py"} < set(found)
    assert all(source["url"].endswith(f"mPLUG-Owl2/{path}") for path, source in found.items())
    assert sources.code_files(known, None) == {}
    with pytest.raises(BadInput, match=rf"no file of X-PLUG/mPLUG-Owl at revision {REVISION}: add its files"):
        sources.code_files(known, code | {"revision": REVISION})


def placed(folder, **changes):
    for name, content in (CHECKPOINT | changes).items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def test_offline_takes_what_lies_there_and_writes_the_same_manifest(hosts, tmp_path):
    online = fetch(hosts, tmp_path / "online")
    hosts.asked.clear()
    assert fetch(hosts, placed(tmp_path / "placed"), offline=True) == online
    placed(tmp_path / "copies" / "team/model")
    assert fetch(hosts, tmp_path / "linked", offline=True, local_folder=str(tmp_path / "copies")) == online
    assert not hosts.asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config.json": None}, "config.json is missing"),
        ({"model-2.safetensors": None}, "model-2.safetensors, which model.safetensors.index.json names, is missing"),
        ({"model-2.safetensors": safetensors()[:-5]}, "model-2.safetensors has .* bytes where its header declares"),
        ({"model-2.safetensors": b"<html>"}, "model-2.safetensors is not a safetensors file"),
        (dict.fromkeys(CHECKPOINT) | {"config.json": b"{}"}, "no weights"),
    ],
)
def test_offline_names_what_is_missing_and_where_to_put_it(hosts, tmp_path, changes, message):
    with pytest.raises(
        BadInput, match=rf"{message}.*offline is true: put the files of team/model at revision {REVISION}"
    ):
        fetch(hosts, placed(tmp_path, **changes), offline=True)
    assert not (tmp_path / "checkpoint.json").exists()


def test_offline_checks_the_hashes_on_file(hosts, tmp_path):
    with pytest.raises(BadInput, match=r"model-1.safetensors has SHA-256 .* is on file"):
        fetch(hosts, placed(tmp_path), offline=True, known={"model-1.safetensors": "0" * 64})
    with pytest.raises(BadInput, match=r"more.safetensors is missing"):
        fetch(hosts, placed(tmp_path), offline=True, known={"more.safetensors": "0" * 64})


def test_a_wrong_local_copy_is_replaced_by_the_hubs(hosts, tmp_path):
    copies = placed(tmp_path / "copies" / "team/model", **{"config.json": b"{}"})
    fetch(hosts, tmp_path / "out", local_folder=str(tmp_path / "copies"))
    fetched = [path for _, path, _ in hosts.asked if "resolve" in path]
    assert fetched == [f"/team/model/resolve/{REVISION}/config.json"]
    assert (copies / "config.json").read_bytes() == b"{}"
    assert (tmp_path / "out/config.json").read_bytes() == CHECKPOINT["config.json"]


# ---- questions ----


def test_questions_come_from_a_local_copy_or_the_address(hosts, tmp_path, monkeypatch):
    body = b'{"question_id": 1}\n'
    url = f"https://raw.invalid/{REVISION}/coco_pope_random.json"
    wanted = sources.Source("pope/x/coco_pope_random.json", url, REVISION, hashlib.sha256(body).hexdigest(), len(body))
    hosts.addresses[url.split("://")[1]] = body
    monkeypatch.setenv(downloads.MIRROR, hosts.url)
    (tmp_path / "copies").mkdir()
    for number, folder in enumerate(("", str(tmp_path / "copies"))):
        fetching.fetch_questions(wanted.identity(), str(tmp_path / "out.json"), folder)
        assert (tmp_path / "out.json").read_bytes() == body and len(hosts.asked) == number + 1
    with pytest.raises(BadInput, match=r"offline is true: put it at .*copies/coco_pope_random.json or"):
        fetching.fetch_questions(wanted.identity(), str(tmp_path / "x.json"), str(tmp_path / "copies"), True)
    with pytest.raises(BadInput, match="--config local_folder=FOLDER"):
        fetching.fetch_questions(wanted.identity(), str(tmp_path / "x.json"), "", True)
    (tmp_path / "copies/coco_pope_random.json").write_bytes(body)
    fetching.fetch_questions(wanted.identity(), str(tmp_path / "x.json"), str(tmp_path / "copies"), True)
    assert len(hosts.asked) == 2 and (tmp_path / "x.json").read_bytes() == body


# ---- images ----


@pytest.fixture
def asked(tmp_path):
    rows = [
        {
            "dataset": "pope-coco",
            "split": "random",
            "id": number + 1,
            "image": NAMES[number // 2],
            "question": f"Is there a thing{number} in the {'imange' if number == 1 else 'image'}?",
            "label": "no" if number % 2 else "yes",
            "object": f"thing{number}",
        }
        for number in range(4)
    ]
    path = tmp_path / "items" / "random.parquet"
    items.save(pa.Table.from_pylist(rows, schema=items.SCHEMA), path, {"sha256": "x"})
    return [str(path)]


def images(hosts, asked, folder, **ways):
    settings = {"way": "coco", "origin": {"url": f"{hosts.url}/{COCO}"}} | QUICK | ways
    fetching.fetch_images(asked, str(folder / "images.csv"), **settings)
    return (folder / "images.csv").read_text()


@pytest.fixture
def pictures(hosts):
    for name, content in PICTURES.items():
        hosts.addresses[f"{COCO}/{name}"] = content
    hosts.addresses[f"{COCO}/not_needed.jpg"] = b"x"
    return "image,sha256\n" + "".join(f"{name},{hashlib.sha256(PICTURES[name]).hexdigest()}\n" for name in NAMES)


def test_images_one_by_one(hosts, asked, pictures, tmp_path):
    hosts.faults[f"/{COCO}/{NAMES[0]}"] = ["cut", "busy"]
    hosts.faults[f"/{COCO}/{NAMES[1]}"] = ["unsized"]
    assert images(hosts, asked, tmp_path / "out", attempts=3) == pictures
    assert sorted(path.name for path in (tmp_path / "out/images").iterdir()) == NAMES
    hosts.asked.clear()
    (tmp_path / "out/images" / NAMES[1]).write_bytes(PICTURES[NAMES[1]][:-30])
    assert images(hosts, asked, tmp_path / "out") == pictures
    assert [path for _, path, _ in hosts.asked] == [f"/{COCO}/{NAMES[1]}"]


@pytest.mark.parametrize(
    ("fault", "message"),
    [("html", "is an HTML page"), ("gone", "answered 404"), ("unsized-cut", "without its end, so it was cut")],
)
def test_a_missing_image_names_the_questions_that_it_affects(hosts, asked, pictures, tmp_path, fault, message):
    hosts.faults[f"/{COCO}/{NAMES[1]}"] = [fault] * LASTING
    with pytest.raises(BadInput, match=rf"{message}.*questions random 3, random 4 need {NAMES[1]}"):
        images(hosts, asked, tmp_path / "out")
    assert not (tmp_path / "out/images.csv").exists()
    assert [path.name for path in (tmp_path / "out/images").iterdir()] == [NAMES[0]]


def archive(content=PICTURES, prefix="val2014/"):
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        for name, body in content.items():
            opened.writestr(prefix + name, body)
        opened.writestr(prefix + "not_needed.jpg", b"x")
    return stream.getvalue()


def test_images_from_the_archive(hosts, asked, pictures, tmp_path):
    hosts.addresses["images.invalid/val2014.zip"] = archive()
    hosts.faults["/images.invalid/val2014.zip"] = ["cut"]
    ways = {"way": "coco_archive", "origin": {"url": f"{hosts.url}/images.invalid/val2014.zip"}}
    assert images(hosts, asked, tmp_path / "out", **ways) == pictures
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["images", "images.csv", "source.json"]


def test_an_archive_that_is_damaged_or_another(hosts, asked, pictures, tmp_path):
    ways = {"way": "coco_archive", "origin": {"url": f"{hosts.url}/images.invalid/val2014.zip"}}
    body = bytearray(archive())
    body[body.find(PICTURES[NAMES[1]]) + 100] ^= 1
    for number, (content, message) in enumerate(
        [
            (bytes(body), "is not a whole archive"),
            (archive({}), f"holds no {NAMES[0]}"),
            (b"x", "is not a whole archive"),
        ]
    ):
        hosts.addresses["images.invalid/val2014.zip"] = content
        with pytest.raises(BadInput, match=message):
            images(hosts, asked, tmp_path / str(number), **ways)
        assert not (tmp_path / str(number) / "images.csv").exists()


def records(**changes):
    rows = {
        "id": [str(number) for number in range(4)],
        "question_id": ["1", "2", "3", "4"],
        # the hub's copy has the corrected spelling
        "question": [f"Is there a thing{number} in the image?" for number in range(4)],
        "answer": ["yes", "no", "yes", "no"],
        "image_source": [NAMES[number // 2].removesuffix(".jpg") for number in range(4)],
        "image": [{"bytes": PICTURES[NAMES[number // 2]], "path": None} for number in range(4)],
    }
    stream = BytesIO()
    pq.write_table(pa.table({name: values for name, values in (rows | changes).items() if values}), stream)
    return stream.getvalue()


def from_hub(hosts, asked, folder, body, monkeypatch, file="Full/random-00000-of-00001.parquet"):
    listed, link = hub.listing, hub.hf_hub_url
    monkeypatch.setattr(hub, "listing", lambda *a, **k: listed(*a, **k | {"endpoint": hosts.url}))
    monkeypatch.setattr(hub, "hf_hub_url", lambda *a, **k: link(*a, **k | {"endpoint": hosts.url}))
    hosts.repositories[("dataset", "lmms-lab/POPE", REVISION)] = {file: body, "README.md": b"x"}
    origin = {"url": "x", "repository": "lmms-lab/POPE", "revision": REVISION}
    return images(hosts, asked, folder, way="hub", origin=origin)


def test_images_embedded_in_the_hubs_data_set(hosts, asked, pictures, tmp_path, monkeypatch):
    assert from_hub(hosts, asked, tmp_path / "out", records(), monkeypatch) == pictures
    assert from_hub(hosts, asked, tmp_path / "plain", records(image_source=None), monkeypatch) == pictures
    assert not list((tmp_path / "out").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": ["Is there a cat in the image?"] * 4}, "question 1 of random is 'Is there a cat"),
        ({"image_source": NAMES[::-1] * 2}, f"question 1 of random shows {NAMES[1]}"),
        ({"image": None}, "has no column 'image'"),
        ({"question_id": ["1", "2", "1", "2"]}, f"lacks 1 images, first {NAMES[1]}"),
    ],
)
def test_a_data_set_that_does_not_fit_the_items(hosts, asked, tmp_path, monkeypatch, changes, message):
    with pytest.raises(BadInput, match=message):
        from_hub(hosts, asked, tmp_path / "out", records(**changes), monkeypatch)
    assert not (tmp_path / "out/images.csv").exists()


def test_a_data_set_without_the_split(hosts, asked, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match=r"no Full/random-\*.parquet"):
        from_hub(hosts, asked, tmp_path / "out", records(), monkeypatch, "Full/popular-00000-of-00001.parquet")


def test_images_of_two_sources_never_mix(hosts, asked, pictures, tmp_path):
    images(hosts, asked, tmp_path / "out")
    other = jpeg(9)
    hosts.addresses["images.invalid/val2014.zip"] = archive(dict.fromkeys(NAMES, other))
    ways = {"way": "coco_archive", "origin": {"url": f"{hosts.url}/images.invalid/val2014.zip"}}
    assert images(hosts, asked, tmp_path / "out", **ways) != pictures
    assert {(tmp_path / "out/images" / name).read_bytes() for name in NAMES} == {other}


def test_offline_images(hosts, asked, pictures, tmp_path):
    out, copies = tmp_path / "out", tmp_path / "copies"
    with pytest.raises(
        BadInput, match=rf"2 images are missing .* first {NAMES[0]} \(questions random 1, random 2 need it\)"
    ):
        images(hosts, asked, out, offline=True)
    assert not (out / "images.csv").exists()
    (copies / "val2014").mkdir(parents=True)
    (copies / "val2014" / NAMES[0]).write_bytes(PICTURES[NAMES[0]])
    (out / "images" / NAMES[1]).write_bytes(PICTURES[NAMES[1]])
    assert images(hosts, asked, out, offline=True, local_folder=str(copies)) == pictures
    (copies / "val2014.zip").write_bytes(archive())
    assert images(hosts, asked, tmp_path / "zip", offline=True, local_folder=str(copies)) == pictures
    assert not hosts.asked


def test_an_image_name_cannot_leave_its_folder(asked, tmp_path):
    table, metadata = items.load(asked[0])
    names = pa.array(["../x.jpg"] * len(table))
    items.save(table.set_column(table.schema.get_field_index("image"), "image", names), asked[0], metadata)
    with pytest.raises(BadInput, match=r"'../x.jpg' of question 1 is no plain file name"):
        coco_images.needed(asked)
