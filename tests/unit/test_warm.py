import os
import subprocess
import sys
import time

import pytest

from workflow.lib import files
from workflow.lib.errors import BadInput
from workflow.models import warm


@pytest.fixture(scope="module")
def process():
    if sys.platform != "linux":
        pytest.skip("forking after an import is only used on Linux")
    started = warm.start()
    yield started
    warm.stop(started)


def test_without_an_idle_process_the_function_runs_in_place(tmp_path, monkeypatch):
    monkeypatch.delenv(warm.ADDRESS, raising=False)
    warm.call(files.write_text, f"{os.getpid()}", str(tmp_path / "pid"))
    assert (tmp_path / "pid").read_text() == str(os.getpid())


def test_the_function_runs_in_a_copy_with_the_callers_folder(process, tmp_path, monkeypatch):
    deadline = time.monotonic() + 10
    while not os.path.exists(os.environ[warm.ADDRESS]) and time.monotonic() < deadline:
        time.sleep(0.05)
    monkeypatch.chdir(tmp_path)
    warm.call(files.write_json, {"a": 1}, "here.json")
    assert files.read_json(tmp_path / "here.json") == {"a": 1}


def test_a_job_in_another_environment_does_not_borrow_it(process, tmp_path, monkeypatch):
    monkeypatch.setenv(warm.INTERPRETER, "/another/environment")
    called = []
    monkeypatch.setattr("workflow.models.warm.socket.send_fds", lambda *_: called.append(1))
    warm.call(files.write_text, "again", str(tmp_path / "again"))
    assert not called and (tmp_path / "again").read_text() == "again"


def test_bad_input_and_errors_come_back(process, tmp_path):
    with pytest.raises(BadInput, match="is not JSON"):
        (tmp_path / "x.json").write_text("<")
        warm.call(files.read_json, str(tmp_path / "x.json"))
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        warm.call(files.sha256, str(tmp_path / "nothing"))


def test_a_killed_job_takes_its_copy_with_it(process, tmp_path):
    code = (
        "import time\nfrom workflow.models import warm\nfrom tests.unit import sleeper\n"
        f"warm.call(sleeper.sleep, {str(tmp_path / 'pid')!r})"
    )
    job = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    copy = int((tmp_path / "pid").read_text())
    assert copy != job.pid
    job.kill()
    job.wait()
    while os.path.exists(f"/proc/{copy}"):
        assert time.monotonic() < deadline, "the copy outlived its job"
        time.sleep(0.05)


def test_it_ends_with_the_process_that_started_it():
    code = "from workflow.models import warm\np = warm.start()\nprint(p.pid)"
    environment = {name: value for name, value in os.environ.items() if name != warm.ADDRESS}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{out.stdout.strip()}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
