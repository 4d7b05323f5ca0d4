"""The plan on a hand-made study."""

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow.lib import plan
from workflow.lib.plan import Work

SPEEDS = "model_id,seconds_per_question,device,note\nteam/a,0.5,GPU one,paper\n"
SIZES = "name,gigabytes,note\nteam/a,14.5,x\nteam/b,30,x\nquestions,0.001,x\n"
MODELS = {"a": "team/a", "b": "team/b"}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    (tmp_path / "sizes.csv").write_text(SIZES)
    return tmp_path


def works(study):
    def work(rule, folder, model, part, count, questions, like=""):
        paths = tuple(str(study / folder / model / part / f"{number}.parquet") for number in range(count))
        return Work(rule, model, part, paths, questions, like)

    return [
        work("infer_shard", "logits", "a", "random", 4, 3000),
        work("infer_shard", "logits", "b", "random", 4, 3000),
        work("infer_noise", "noise/fog", "a", "random", 2, 3000, "infer_shard"),
        work("infer_signals", "signal_shards", "a", "random", 2, 3000),
    ]


def done(study, path, **columns):
    path = study / path
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def speeds(study):
    return plan.speeds(works(study), study, study / "speeds.csv", MODELS)


def text(study, downloads=None):
    return "\n".join(plan.lines(plan.count(works(study)), speeds(study), downloads))


def test_done_files_count_and_their_median_speed_is_taken(study):
    done(study, "logits/b/random/0.parquet", seconds=[1.0, 2.0, 9.0])
    done(study, "logits/b/random/2.parquet", seconds=[2.0])
    assert [(row.done, row.left) for row in plan.count(works(study))] == [(0, 3000), (2, 1500), (0, 3000), (0, 3000)]
    found = speeds(study)
    assert found["infer_shard", "a"] == (0.5, "paper; device: GPU one")
    assert found["infer_shard", "b"] == (2.0, "median of 2 done files")
    printed = text(study)
    # 3000 x 0.5 s + 1500 x 2 s = 1.25 h; noise passes as long as those of the main run: 3000 x 0.5 s
    assert "infer_shard         1.25\n" in printed
    assert "infer_noise         0.42\n" in printed
    assert "ahead               1.67  hours of inference, and what is unknown above" in printed


def test_what_states_no_seconds_is_timed_by_its_benchmark(study):
    done(study, "signal_shards/a/random/0.parquet", attention=[0.1] * 20)
    benchmark = study / "benchmarks/infer_signals/a/random/0.tsv"
    benchmark.parent.mkdir(parents=True)
    benchmark.write_text("s\th:m:s\n30.0\t0:00:30\n")
    assert speeds(study)["infer_signals", "a"] == (1.5, "median of 1 done file")
    # one of two files of 1500 questions is left
    assert "infer_signals       0.62\n" in text(study)
    benchmark.unlink()
    assert speeds(study)["infer_signals", "a"] == (None, plan.UNKNOWN)


def test_noise_has_a_speed_of_its_own_once_one_is_done(study):
    assert speeds(study)["infer_noise", "a"] == (0.5, "as infer_shard")
    done(study, "noise/fog/a/random/1.parquet", seconds=[0.75])
    assert speeds(study)["infer_noise", "a"] == (0.75, "median of 1 done file")


def test_an_unknown_speed_is_said_and_not_counted_as_zero(study):
    printed = text(study)
    assert "infer_shard     b                   unknown  unknown  unknown until one is done" in printed
    assert "infer_shard         0.42  without b, of unknown speed" in printed
    assert "infer_signals    unknown\n" in printed


def test_a_damaged_file_gives_no_speed_and_no_crash(study):
    done(study, "logits/b/random/0.parquet", seconds=[2.0])
    (study / "logits/b/random/1.parquet").write_bytes(b"PAR1 cut")
    assert speeds(study)["infer_shard", "b"][0] == 2.0


def test_download_and_disk_follow_from_what_is_here(study):
    (study / "here.json").write_text("{}")
    wanted = {
        "team/a": ("team/a", str(study / "here.json")),
        "team/b": ("team/b", str(study / "not.json")),
        "questions": ("questions", str(study / "not.json")),
    }
    printed = text(study, plan.download_sizes(study / "sizes.csv", wanted))
    assert f"{'team/a':<40}      14.5  here" in printed
    assert f"{'questions':<40}     0.001  to be fetched" in printed
    assert "download ahead about 30 GB; disk about 45 GB while all of it is kept (" in printed
    unknown = plan.download_sizes(study / "sizes.csv", {"team/c": ("team/c", "no")})
    assert unknown == [("team/c", None, False)]
    assert "and what team/c takes" in text(study, unknown)
    assert "download" not in text(study)


def test_published_speeds_and_sizes_belong_to_pinned_models(repository):
    with open(repository / "workflow/sources.csv", newline="") as stream:
        known = [row["name"] for row in csv.DictReader(stream)]
    for name in ("speeds", "sizes"):
        for row in Path(repository, f"workflow/published/{name}.csv").read_text().splitlines()[1:]:
            key = row.split(",")[0]
            if key != "questions" and not key.startswith("images/"):
                assert any(source.startswith(f"repository/{key}/") for source in known), row
