import os

import pandas as pd
import pytest

from workflow.lib import files
from workflow.lib.errors import BadInput


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a.txt"
    files.write_text("old", target)
    with pytest.raises(RuntimeError), files.write_atomically(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_written_files_are_readable_by_others(tmp_path):
    files.write_text("x", tmp_path / "a.txt")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~umask


def test_csv_keeps_full_precision_and_types(tmp_path):
    frame = pd.DataFrame({"x": [0.1 + 0.2, 1 / 3], "flag": [True, False], "text": ["", "a,b"], "n": [1, 2]})
    files.write_csv(frame, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_bytes().count(b"\r") == 0
    back = files.read_csv(tmp_path / "a.csv")
    assert back["x"].tolist() == frame["x"].tolist()
    assert back["flag"].tolist() == [True, False] and back["text"].tolist() == ["", "a,b"]


def test_csv_refuses_missing_values(tmp_path):
    with pytest.raises(ValueError, match="row 1 of column 'x' is missing"):
        files.write_csv(pd.DataFrame({"x": [1.0, float("nan")]}), tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


def test_json_that_is_none_is_bad_input(tmp_path):
    (tmp_path / "a.json").write_text("<html>")
    with pytest.raises(BadInput, match=r"a\.json is not JSON"):
        files.read_json(tmp_path / "a.json")
