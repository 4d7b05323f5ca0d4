import json

import pytest

from workflow.lib import items
from workflow.lib.errors import BadInput


def polls(images=4, per_image=6):
    rows = []
    for image in range(images):
        for question in range(per_image):
            rows.append(
                {
                    "question_id": len(rows) + 1,
                    "image": f"COCO_val2014_{image:012d}.jpg",
                    "text": f"Is there a thing{question} in the image?",
                    "label": ("yes", "no")[len(rows) % 2],
                }
            )
    return rows


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def refusal(path, rows, match, expected=None):
    expected = expected or items.Expected(24, 6)
    with pytest.raises(BadInput, match=match) as problem:
        items.read_polls(written(path, rows), "pope", "random", expected)
    assert str(path) in str(problem.value)


def test_reads_keys_labels_and_objects(tmp_path):
    table = items.read_polls(written(tmp_path / "q.json", polls()), "pope", "random", items.Expected(24, 6))
    assert table.schema.equals(items.SCHEMA)
    assert table["id"].to_pylist() == list(range(1, 25))
    assert table["object"].to_pylist()[:2] == ["thing0", "thing1"]


@pytest.mark.parametrize(
    ("question", "thing"),
    [
        ("Is there a dining table in the image?", "dining table"),
        ("Is there an apple in the imange?", "apple"),
        ("Is there an oven in the image ?", "oven"),
        ("What is this?", ""),
    ],
)
def test_object_of_a_question(question, thing):
    assert items.object_of(question) == thing


def test_row_count_is_named_with_labels_and_hash(tmp_path):
    refusal(tmp_path / "q.json", polls(3), r"has 18 rows \(9 yes, 9 no\) but 24 rows.*SHA-256")
    refusal(tmp_path / "q.json", polls(), r"has 24 rows.*but 18 rows", items.Expected(18, 6))


def test_another_revision_is_refused_by_hash(tmp_path):
    refusal(tmp_path / "q.json", polls(), "another revision", items.Expected(24, 6, "0" * 64))


def test_json_array_cut_file_and_page_are_told_apart(tmp_path):
    path = tmp_path / "q.json"
    path.write_text(json.dumps(polls()))
    with pytest.raises(BadInput, match="one JSON array"):
        items.read_polls(path, "pope", "random", items.Expected(24, 6))
    path.write_text("".join(json.dumps(row) + "\n" for row in polls())[:-20])
    with pytest.raises(BadInput, match="line 24 is not JSON"):
        items.read_polls(path, "pope", "random", items.Expected(24, 6))
    path.write_text("<html>Not found</html>\n")
    with pytest.raises(BadInput, match="line 1 is not JSON"):
        items.read_polls(path, "pope", "random", items.Expected(24, 6))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"question_id": "5"}, "line 5: field 'question_id' is '5' where a int"),
        ({"question_id": True}, "line 5: field 'question_id'"),
        ({"label": "maybe"}, "line 5: label 'maybe'"),
        ({"text": None}, "line 5: field 'text' is None"),
        ({"question_id": 4}, "row 5: question_id 4 where 5"),
        ({"image": "other.jpg"}, "row 5: image other.jpg"),
    ],
)
def test_one_bad_row_is_named(tmp_path, change, match):
    rows = polls()
    rows[4] |= change
    refusal(tmp_path / "q.json", rows, match)


def test_labels_must_alternate(tmp_path):
    rows = polls()
    rows[0]["label"], rows[1]["label"] = "no", "yes"
    refusal(tmp_path / "q.json", rows, "row 1: label 'no' where 'yes'")


def test_save_and_load(tmp_path):
    table = items.read_polls(written(tmp_path / "q.json", polls()), "pope", "random", items.Expected(24, 6))
    items.save(table, tmp_path / "i.parquet", {"dataset": "pope"})
    back, metadata = items.load(tmp_path / "i.parquet")
    assert back.equals(table) and metadata == {"dataset": "pope"}
    (tmp_path / "i.parquet").write_bytes((tmp_path / "i.parquet").read_bytes()[:-30])
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        items.load(tmp_path / "i.parquet")


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_cover_every_row_once_and_keep_images_whole(shards):
    images = [f"i{number // 6}" for number in range(30)]
    parts = [items.shard_rows(images, shard, shards).tolist() for shard in range(shards)]
    assert sorted(row for part in parts for row in part) == list(range(30))
    owners = [{images[row] for row in part} for part in parts]
    assert sum(map(len, owners)) == 5


def test_real_question_files(shared_data):
    declared = {"9b54106": 57, "3df3ba1": 0}
    for folder in sorted((shared_data / "pope").iterdir()):
        if not folder.is_dir():
            continue
        for split in ("adversarial", "popular", "random"):
            path = folder / f"coco_pope_{split}.json"
            table = items.read_polls(path, "pope", split, items.Expected(3000, 6))
            assert "" not in table["object"].to_pylist()
            typos = sum("imange" in question for question in table["question"].to_pylist())
            assert typos == (declared[folder.name[:7]] if split == "adversarial" else 0)
