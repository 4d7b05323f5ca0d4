"""Sources: the table of addresses, and fetching from servers and folders that misbehave."""

import csv
import hashlib
import http.server
import json
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from workflow.lib import files, sources
from workflow.lib.errors import BadInput

REVISION = "0123456789abcdef0123456789abcdef01234567"
BODY = json.dumps({"results": list(range(400))}).encode()


def source_of(body: bytes, url: str = "https://example.invalid/records.json", name: str = "released/records.json"):
    return sources.Source(name, url, REVISION, hashlib.sha256(body).hexdigest(), len(body))


class Misbehaving(http.server.BaseHTTPRequestHandler):
    """Answers by path; each way is one that real mirrors and proxies were seen to answer."""

    def do_GET(self):
        html = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
        status, body, length = {
            "/whole/records.json": (200, BODY, len(BODY)),
            "/cut/records.json": (200, BODY[:200], len(BODY)),
            "/cut-without-length/records.json": (200, BODY[:200], None),
            "/whole-without-length/records.json": (200, BODY, None),
            "/html/records.json": (200, html, len(html)),
            "/other/records.json": (200, BODY.replace(b"399", b"398"), len(BODY)),
            "/longer/records.json": (200, BODY + b" ", len(BODY) + 1),
            "/busy/records.json": (503, b"try later", 9),
        }[self.path]
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Misbehaving)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def direct(url, timeout):
    """Open without any proxy of the environment."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=timeout)


@pytest.mark.parametrize("way", ["whole", "whole-without-length"])
def test_fetches_a_whole_body(way, address, tmp_path):
    target = tmp_path / "deep" / "records.json"
    sources.fetch(source_of(BODY, f"{address}/{way}/records.json"), target, opener=direct, pause=0)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("failure", ["busy", "cut"])
def test_a_passing_fault_is_tried_again_and_a_lasting_one_is_not(failure, address, tmp_path):
    asked = []

    def at_first(url, timeout):
        asked.append(url)
        return direct(url.replace("whole", failure) if len(asked) < 3 else url, timeout)

    source = source_of(BODY, f"{address}/whole/records.json")
    sources.fetch(source, tmp_path / "a.json", opener=at_first, pause=0)
    assert (tmp_path / "a.json").read_bytes() == BODY and len(asked) == 3
    asked.clear()
    with pytest.raises(BadInput):
        sources.fetch(source, tmp_path / "b.json", opener=at_first, pause=0, attempts=2)
    asked.clear()

    def unresolved(url, timeout):
        asked.append(url)
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    with pytest.raises(BadInput, match="Name or service not known"):
        sources.fetch(source, tmp_path / "b.json", opener=unresolved, pause=60)
    assert len(asked) == 1 and [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("cut", f"was cut after 200 of {len(BODY)} bytes"),
        ("cut-without-length", "neither JSON nor JSON lines"),
        ("html", "is an HTML page and not JSON"),
        ("other", "has SHA-256"),
        ("longer", f"more than {len(BODY)} bytes where {len(BODY)} are expected"),
        ("busy", "the server answered 503"),
    ],
)
def test_refuses_a_bad_answer_and_leaves_nothing(way, message, address, tmp_path):
    with pytest.raises(BadInput, match=message) as caught:
        sources.fetch(
            source_of(BODY, f"{address}/{way}/records.json"),
            tmp_path / "records.json",
            opener=direct,
            pause=0,
        )
    assert "--config released_folder=PATH" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_answer_keeps_the_file_that_was_there(address, tmp_path):
    target = tmp_path / "records.json"
    target.write_bytes(BODY)
    with pytest.raises(BadInput):
        sources.fetch(source_of(BODY, f"{address}/other/records.json"), target, opener=direct, pause=0)
    assert [path.name for path in tmp_path.iterdir()] == ["records.json"]
    assert target.read_bytes() == BODY


def test_without_network_and_folder_one_sentence_says_how_to_supply_the_file(tmp_path):
    with pytest.raises(BadInput) as caught:
        sources.fetch(source_of(BODY, "http://127.0.0.1:9/records.json"), tmp_path / "x.json", opener=direct, pause=0)
    message = str(caught.value)
    assert message.startswith("released/records.json cannot be fetched from http://127.0.0.1:9/records.json")
    assert "--config released_folder=PATH" in message
    assert message.count("\n") == 0
    assert list(tmp_path.iterdir()) == []


def test_a_silent_server_is_not_waited_for_without_end(tmp_path):
    def silent(url, timeout):
        assert timeout == 0.25
        raise TimeoutError("timed out")

    with pytest.raises(BadInput, match=r"timed out.*released_folder"):
        sources.fetch(source_of(BODY), tmp_path / "records.json", opener=silent, timeout=0.25, pause=0)


def forbidden(*_, **__):
    raise AssertionError("the network was asked although a folder was given")


@pytest.mark.parametrize(
    "place",
    [
        "records.json",
        "released/records.json",
        f"pope/{REVISION}/records.json",
        f"../pope/{REVISION}/records.json",
    ],
)
def test_finds_the_file_in_each_documented_place(place, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(BODY)
    sources.fetch(source_of(BODY), tmp_path / "out.json", folder, opener=forbidden)
    assert (tmp_path / "out.json").read_bytes() == BODY


def test_another_revision_of_the_same_name_does_not_hide_the_right_one(tmp_path):
    right = tmp_path / "pope" / REVISION / "records.json"
    right.parent.mkdir(parents=True)
    right.write_bytes(BODY)
    (tmp_path / "records.json").write_bytes(BODY.replace(b"399", b"398"))
    sources.fetch(source_of(BODY), tmp_path / "out.json", tmp_path, opener=forbidden)
    assert (tmp_path / "out.json").read_bytes() == BODY


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not in released_folder .*searched"),
        (BODY[:-5], "neither JSON nor JSON lines"),
        (b" \n<html></html>", "is an HTML page"),
        (BODY.replace(b"399", b"398"), "has SHA-256"),
        (BODY + b"\n", f"more than {len(BODY)} bytes"),
    ],
)
def test_refuses_a_bad_local_copy_and_leaves_nothing(content, message, tmp_path):
    folder, out = tmp_path / "folder", tmp_path / "out"
    folder.mkdir()
    if content is not None:
        (folder / "records.json").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        sources.fetch(source_of(BODY), out / "records.json", folder, opener=forbidden)
    assert not out.exists() or list(out.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BadInput, match="nowhere is not a folder"):
        sources.fetch(source_of(BODY), tmp_path / "out.json", tmp_path / "nowhere")


def test_a_source_without_hash_still_has_to_be_json(tmp_path):
    unhashed = replace(source_of(BODY), sha256="", bytes=None)
    (tmp_path / "records.json").write_bytes(b'{"results": {}}')
    sources.fetch(unhashed, tmp_path / "out" / "x.json", tmp_path)
    assert (tmp_path / "out" / "x.json").read_bytes() == b'{"results": {}}'
    (tmp_path / "records.json").write_bytes(b'{"results": {')
    with pytest.raises(BadInput, match="neither JSON nor JSON lines"):
        sources.fetch(unhashed, tmp_path / "again" / "x.json", tmp_path)


def test_json_lines_pass(tmp_path):
    lines = b'{"question_id": 1}\n{"question_id": 2}\n'
    (tmp_path / "records.json").write_bytes(lines)
    sources.fetch(source_of(lines), tmp_path / "out.json", tmp_path)
    assert (tmp_path / "out.json").read_bytes() == lines


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_table_of_sources_is_sound():
    loaded = sources.load()
    assert list(loaded) == sorted(loaded)
    assert sum(name.startswith("pope/") for name in loaded) == 6
    held = {name: source for name, source in loaded.items() if name.startswith(("pope/", "released/"))}
    unhashed = {source.basename for source in held.values() if not source.sha256}
    assert unhashed == {"multi_model_results.json"} | {
        f"pope_full_adversarial_{name}_summary.json" for name in ("baseline", "beta1.0", "clip_b1.0", "clip_b1.5")
    }
    rows = rows_of(sources.SOURCES_CSV)
    assert {row["licence"] for row in rows if row["name"] in held} == {"MIT"}
    assert all(row["licence"] and row["note"] for row in rows)


def test_the_full_study_pins_what_the_table_lists(repository):
    known = sources.load()
    study = yaml.safe_load((repository / "workflow/studies/full.yaml").read_text(encoding="utf-8"))
    for model in [*study["models"].values(), *study["sources"]["clips"].values()]:
        assert f"repository/{model['model_id']}/{model['revision']}" in known
    for split, digest in study["dataset"]["sha256"].items():
        assert known[f"pope/{study['dataset']['revision']}/coco_pope_{split}.json"].sha256 == digest
    assert sources.image_origin(known, "coco")["url"].startswith("https://")
    assert sources.image_origin(known, "coco_archive")["url"].endswith("val2014.zip")
    assert len(sources.image_origin(known, "hub")["revision"]) == 40
    weights = sources.known_files(known, study["models"]["llava15"])
    assert len(weights) == 4 and not sources.known_files(known, study["models"]["qwen2_vl"])
    with pytest.raises(BadInput, match=r"sources.csv has no row pope/f+/"):
        sources.place_of(known, f"pope/{'f' * 40}/coco_pope_random.json")


def test_only_files_of_origins_without_revisions_may_lack_one(tmp_path):
    header = ",".join(sources.COLUMNS)
    path = tmp_path / "sources.csv"
    row = "unversioned/a.zip,,https://example.invalid/a.zip,{},,,x,why\n"
    path.write_text(f"{header}\n{row.format('')}")
    assert sources.load(path)["unversioned/a.zip"].revision == ""
    for text in (row.format(REVISION), row.format("").replace("unversioned", "data")):
        path.write_text(f"{header}\n{text}")
        with pytest.raises(BadInput, match="40 hex digits"):
            sources.load(path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("revision", "9b54106", "is not 40 hex digits"),
        ("revision", "f" * 40, "contain the revision"),
        ("sha256", "A" * 64, "64 lower-case hex digits"),
        ("sha256", "", "both sha256 and bytes"),
        ("bytes", "many", "bytes a whole number"),
        ("url", "http://example.invalid/x", "must use https"),
        ("name", "../outside.json", "relative path that occurs once"),
        ("name", "zzz/coco_pope_adversarial.json", "not sorted by name"),
    ],
)
def test_a_faulty_row_is_named(column, value, message, tmp_path):
    rows = [row for row in rows_of(sources.SOURCES_CSV) if row["name"].startswith("pope/")]
    rows[0][column] = value
    faulty = tmp_path / "sources.csv"
    with open(faulty, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, sources.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(BadInput, match=message):
        sources.load(faulty)


def test_a_repeated_row_is_named(tmp_path):
    text = sources.SOURCES_CSV.read_text(encoding="utf-8")
    repeated = tmp_path / "sources.csv"
    repeated.write_text(text + text.splitlines()[1] + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match="occurs once"):
        sources.load(repeated)


def test_every_real_file_passes(shared_data, tmp_path):
    for source in sources.load().values():
        if not source.name.startswith(("pope/", "released/")):
            continue
        target = tmp_path / source.name
        sources.fetch(source, target, shared_data / "released", opener=forbidden)
        assert not source.sha256 or files.sha256(target) == source.sha256
