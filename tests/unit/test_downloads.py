"""Downloads that are cut, continued, replaced by pages, or wrong."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple

import pytest

from tests.data_hosts import LASTING, Hosts, git_blob, serving
from workflow.lib import downloads
from workflow.lib.errors import BadInput

BODY = bytes(range(256)) * 40
PATH = "/files.invalid/big.bin"


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def hosts():
    served = Hosts()
    served.addresses[PATH[1:]] = BODY
    with serving(served):
        yield served


def fetched(hosts, target, **ways):
    settings = {"remedy": "put it there", "pause": 0, "check": downloads.sha256_check(hashlib.sha256(BODY).hexdigest())}
    counted = []
    downloads.download(f"{hosts.url}{PATH}", target, progress=counted.append, **(settings | ways))
    return sum(counted)


# without any size a cut is told by the hash alone, see below
@pytest.mark.parametrize(
    ("fault", "size"),
    [(fault, size) for fault in ("", "unsized", "busy", "cut", "no-range") for size in (len(BODY), None)]
    + [("unsized-cut", len(BODY))],
)
def test_a_passing_fault_ends_in_the_whole_file(hosts, tmp_path, fault, size):
    hosts.faults[PATH] = [fault] * 2
    target = tmp_path / "deep" / "big.bin"
    assert fetched(hosts, target, size=size) == len(BODY)
    assert target.read_bytes() == BODY
    assert [path.name for path in target.parent.iterdir()] == ["big.bin"]


def test_a_cut_download_is_continued_where_it_stopped(hosts, tmp_path):
    hosts.faults[PATH] = ["cut", "cut"]
    fetched(hosts, tmp_path / "big.bin")
    assert [asked for *_, asked in hosts.asked] == ["", f"bytes={len(BODY) // 2}-", f"bytes={len(BODY) * 3 // 4}-"]


def test_another_process_continues_what_a_killed_one_left(hosts, tmp_path):
    downloads.part_of(tmp_path / "big.bin").write_bytes(BODY[:3000])
    fetched(hosts, tmp_path / "big.bin", size=len(BODY))
    assert hosts.asked[0][2] == "bytes=3000-" and (tmp_path / "big.bin").read_bytes() == BODY


def test_a_server_without_ranges_makes_it_start_again(hosts, tmp_path):
    hosts.faults[PATH] = ["cut", "no-range"]
    assert fetched(hosts, tmp_path / "big.bin") == len(BODY)


@pytest.mark.parametrize("left", [b"x" * 3000, b"x" * len(BODY), BODY + b"more"])
def test_what_another_file_left_is_thrown_away(hosts, tmp_path, left):
    downloads.part_of(tmp_path / "big.bin").write_bytes(left)
    assert fetched(hosts, tmp_path / "big.bin", size=len(BODY)) == len(BODY)
    assert (tmp_path / "big.bin").read_bytes() == BODY


def test_a_part_longer_than_the_file_of_unknown_size_is_thrown_away(hosts, tmp_path):
    downloads.part_of(tmp_path / "big.bin").write_bytes(BODY + b"more")
    fetched(hosts, tmp_path / "big.bin")
    assert (tmp_path / "big.bin").read_bytes() == BODY


@pytest.mark.parametrize(
    ("fault", "size", "message"),
    [
        ("html", len(BODY), "is an HTML page"),
        ("html", None, "is an HTML page"),
        ("other", len(BODY), "has SHA-256"),
        ("unsized-cut", None, "has SHA-256"),
        ("gone", None, "the server answered 404"),
        ("refused", None, "the server answered 403 .*HF_TOKEN"),
        ("busy", None, "cannot be fetched .*Service Unavailable"),
    ],
)
def test_a_lasting_fault_is_one_sentence_and_leaves_no_file(hosts, tmp_path, fault, size, message):
    hosts.faults[PATH] = [fault] * LASTING
    with pytest.raises(BadInput, match=message) as caught:
        fetched(hosts, tmp_path / "big.bin", size=size, attempts=3)
    assert str(caught.value).endswith("put it there.") and "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_fault_after_some_bytes_keeps_them_and_says_so(hosts, tmp_path):
    hosts.faults[PATH] = ["cut"] + ["busy"] * LASTING
    with pytest.raises(BadInput, match=f"{len(BODY) // 2} bytes are kept and the same command continues"):
        fetched(hosts, tmp_path / "big.bin", attempts=2)
    assert downloads.part_of(tmp_path / "big.bin").stat().st_size == len(BODY) // 2


def test_a_server_that_always_cuts_and_never_continues_is_given_up(hosts, tmp_path):
    half = len(BODY) // 2
    downloads.part_of(tmp_path / "big.bin").write_bytes(BODY[:half])

    def opener(url, timeout, headers):
        hosts.faults[PATH] = ["cut"]
        return downloads.open_address(url, timeout, {key: headers[key] for key in headers if key != "Range"})

    with pytest.raises(BadInput, match="was cut after"):
        fetched(hosts, tmp_path / "big.bin", opener=opener, attempts=3)
    assert len(hosts.asked) <= 4


def test_a_full_disk_is_refused_before_the_download(hosts, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 5, 5))
    with pytest.raises(BadInput, match=r"needs 0.0 GB more .*--directory"):
        fetched(hosts, tmp_path / "big.bin", size=len(BODY))
    assert not hosts.asked


def test_the_mirror_takes_the_place_of_every_host(hosts, tmp_path, monkeypatch):
    monkeypatch.setenv(downloads.MIRROR, hosts.url + "/")
    downloads.download("https://files.invalid/big.bin", tmp_path / "big.bin", remedy="")
    assert (tmp_path / "big.bin").read_bytes() == BODY


def test_a_credential_stays_with_the_first_host(monkeypatch):
    seen = []
    monkeypatch.setattr("urllib.request.urlopen", lambda request, timeout: seen.append(request))
    downloads.open_address("https://hub.invalid/x", 1, {"Authorization": "Bearer x", "Range": "bytes=1-"})
    assert "Authorization" not in seen[0].headers and seen[0].unredirected_hdrs["Authorization"] == "Bearer x"


def test_git_names_a_content_as_git_does(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"what is up, doc?")
    # the example of the Pro Git book
    assert git_blob(path.read_bytes()) == "bd9dbf5aae1a3862dd1526723246b20206e5fc37"
    assert downloads.git_blob_check("bd9dbf5aae1a3862dd1526723246b20206e5fc37")(path) == ""
    assert "git object name" in downloads.git_blob_check("0" * 40)(path)


def test_a_killed_process_leaves_a_part_that_the_next_continues(hosts, tmp_path):
    hosts.addresses["files.invalid/slow.bin"] = BODY
    code = (
        "import sys, time\n"
        "from workflow.lib import downloads\n"
        "def slow(count):\n"
        "    if count: open(sys.argv[2] + '.begun', 'w').close(); time.sleep(60)\n"
        "downloads.BLOCK = 1000\n"
        "downloads.download(sys.argv[1], sys.argv[2], remedy='', progress=slow)\n"
    )
    target = tmp_path / "slow.bin"
    url = f"{hosts.url}/files.invalid/slow.bin"
    process = subprocess.Popen([sys.executable, "-c", code, url, str(target)])
    begun = time.monotonic()
    while not (tmp_path / "slow.bin.begun").exists():
        assert process.poll() is None and time.monotonic() - begun < 30
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not target.exists()
    downloads.download(url, target, remedy="", size=len(BODY))
    assert target.read_bytes() == BODY
