"""The plan on a hand-made study."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow.lib import plan

SPEEDS = "model_id,seconds_per_question,device,note\nteam/a,0.5,GPU one,paper\n"
SIZES = "model_id,gigabytes,note\nteam/a,14.5,x\nteam/b,30,x\n"
MODELS = {"a": "team/a", "b": "team/b"}


@pytest.fixture
def study(tmp_path):
    (tmp_path / "speeds.csv").write_text(SPEEDS)
    (tmp_path / "sizes.csv").write_text(SIZES)
    return tmp_path


def shard(study, model, split, number, seconds):
    path = Path(study, "logits", model, split, f"{number}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"seconds": seconds}), path)


def text(study, fetched=None):
    table = plan.count(study, list(MODELS), ["random"], 4, 3000)
    known = plan.speeds(study, MODELS, study / "speeds.csv")
    return "\n".join(plan.lines(table, known, MODELS, study / "sizes.csv", fetched))


def test_done_shards_count_and_their_median_speed_is_taken(study):
    shard(study, "b", "random", 0, [1.0, 2.0, 9.0])
    shard(study, "b", "random", 2, [2.0])
    rows = plan.count(study, list(MODELS), ["random"], 4, 3000)
    assert [(row.done, row.questions_left) for row in rows] == [(0, 3000), (2, 1500)]
    assert plan.speeds(study, MODELS, study / "speeds.csv") == {
        "a": (0.5, "paper; device: GPU one"),
        "b": (2.0, "median of 2 done shards"),
    }
    # 3000 x 0.5 s + 1500 x 2 s = 1.25 h
    assert "ahead                           1.25  hours of inference; loading" in text(study)


def test_an_unknown_speed_is_said_and_not_counted_as_zero(study):
    printed = text(study)
    assert "unknown until a shard of it is done" in printed
    assert "0.42  hours of inference, and what b will take" in printed


def test_a_damaged_shard_gives_no_speed_and_no_crash(study):
    shard(study, "b", "random", 0, [2.0])
    (study / "logits/b/random/1.parquet").write_bytes(b"PAR1 cut")
    assert plan.speeds(study, MODELS, study / "speeds.csv")["b"][0] == 2.0


def test_download_and_disk_follow_from_what_is_here(study):
    printed = text(study, {"a": True, "b": False})
    assert "team/a                                    14.5  here" in printed
    assert "download ahead about 30 GB; disk in the end about 44 GB" in printed
    assert "download" not in text(study)


def test_published_speeds_and_sizes_belong_to_pinned_models(repository):
    known = {row.split(",")[0] for row in (repository / "workflow/sources.csv").read_text().splitlines()}
    for name in ("speeds", "sizes"):
        for row in (repository / f"workflow/published/{name}.csv").read_text().splitlines()[1:]:
            assert any(source.startswith(f"repository/{row.split(',')[0]}/") for source in known), row
