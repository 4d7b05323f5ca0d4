import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow.lib import items, logits
from workflow.lib.errors import BadInput

CANDIDATES = [5, 9]


def identity(**changes):
    fields = dict.fromkeys((*logits.MOVES_A_LOGIT, *logits.DESCRIBES), "x")
    fields |= {
        "format": logits.FORMAT,
        "dataset": "pope",
        "split": "random",
        "candidate_ids": CANDIDATES,
        "token_sets": {},
        "shard": 0,
        "shards": 2,
        "rows": 0,
    }
    return fields | changes


def rows(ids, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for number in ids:
        top = np.sort(rng.normal(10, 2, logits.TOP).astype(np.float32))[::-1]
        made.append(
            {
                "dataset": "pope",
                "split": "random",
                "id": number,
                "image": f"i{(number - 1) // 6}",
                "prompt_sha256": "p",
                "image_tokens": 9,
                "argmax_id": 5,
                "argmax_text": "Yes",
                "logsumexp": float(top[0]) + 0.5,
                "logit_5": top[0],
                "logit_9": top[4],
                "rank_5": 1,
                "rank_9": 5,
                "top_ids": [5, *range(100, 99 + logits.TOP)],
                "top_logits": top.tolist(),
                "generated_ids": [5, 2],
                "generated_text": "Yes",
                "returned_text": "Yes",
                "returned_prompt": False,
                "seconds": 0.1,
            }
        )
    return pa.Table.from_pylist(made, schema=logits.schema(CANDIDATES))


def questions(count=12):
    return pa.table(
        {
            "dataset": ["pope"] * count,
            "split": ["random"] * count,
            "id": list(range(1, count + 1)),
            "image": [f"i{number // 6}" for number in range(count)],
        }
    )


@pytest.fixture
def shards(tmp_path):
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    logits.write(logits.Logits(rows(range(1, 7)), identity(shard=0)), paths[0])
    logits.write(logits.Logits(rows(range(7, 13), seed=1), identity(shard=1)), paths[1])
    return paths


def replaced(table, column, values):
    position = table.column_names.index(column)
    return table.set_column(position, table.schema.field(position), pa.array(values, table.schema.field(position).type))


def test_a_shard_reads_back_as_written(shards):
    back = logits.read(shards[0])
    assert back.table.equals(rows(range(1, 7)))
    assert back.identity["rows"] == 6
    assert back.candidate_logits.shape == (6, 2) and back.candidate_logits.dtype == np.float32


def test_an_empty_shard_has_the_same_schema(tmp_path):
    logits.write(logits.Logits(rows([]), identity()), tmp_path / "e.parquet")
    back = logits.read(tmp_path / "e.parquet")
    assert back.table.schema.equals(logits.schema(CANDIDATES)) and back.candidate_logits.shape == (0, 2)


def test_sixteen_bit_ties_survive(tmp_path):
    table = rows(range(1, 3))
    tied = np.float16(21.375).astype(np.float32)
    for column in ("logit_5", "logit_9"):
        table = replaced(table, column, [tied, tied])
    for column in ("top_logits",):
        table = replaced(table, column, [[tied, tied, *[0.0] * (logits.TOP - 2)]] * 2)
    table = replaced(table, "logsumexp", [22.5, 22.5])
    logits.write(logits.Logits(table, identity()), tmp_path / "t.parquet")
    back = logits.read(tmp_path / "t.parquet").candidate_logits
    assert (back[:, 0] == back[:, 1]).all()


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("logit_9", float("nan"), "id 3: logit_9 is NaN"),
        ("logit_9", float("-inf"), "id 3: logit_9 is infinite"),
        ("logsumexp", float("nan"), "id 3: logsumexp is NaN"),
        ("logsumexp", -50.0, "not taken over the vocabulary"),
        ("logit_9", 99.0, "id 3: logit_9 is above the logit of the argmax"),
        ("argmax_id", 9, "argmax_id is not the first of top_ids"),
        ("id", 1, "id 1 occurs more than once"),
        ("split", "popular", "split 'popular' in a row where 'random'"),
        ("id", None, r"row 2: 'id' is missing \(null\)"),
        ("logit_5", None, r"row 2: 'logit_5' is missing \(null\)"),
    ],
)
def test_rows_that_break_the_contract_are_named_and_not_written(tmp_path, column, value, match):
    table = rows(range(1, 7))
    values = table[column].to_pylist()
    values[2] = value
    position = table.column_names.index(column)
    loose = pa.schema([field.with_nullable(True) for field in table.schema])
    broken = table.cast(loose).set_column(position, loose.field(position), pa.array(values, loose.field(position).type))
    with pytest.raises(BadInput, match=match):
        logits.write(logits.Logits(broken, identity()), tmp_path / "b.parquet")
    assert list(tmp_path.iterdir()) == []


def test_missing_column_and_wrong_type_differ(tmp_path):
    table = rows(range(1, 7))
    with pytest.raises(BadInput, match="no column 'logit_9'"):
        logits.check(table.drop_columns(["logit_9"]), identity(rows=6), "f")
    strings = table.set_column(2, "id", pa.array([str(number) for number in range(1, 7)]))
    with pytest.raises(BadInput, match="column 'id' is string where int64"):
        logits.check(strings, identity(rows=6), "f")


def test_cut_and_foreign_files_are_refused(shards, tmp_path):
    whole = shards[0].read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 4):
        (tmp_path / "c.parquet").write_bytes(whole[:cut])
        with pytest.raises(BadInput, match=r"c\.parquet is not a whole Parquet file"):
            logits.read(tmp_path / "c.parquet")
    pq.write_table(rows(range(1, 7)), tmp_path / "f.parquet")
    with pytest.raises(BadInput, match="carries no identity"):
        logits.read(tmp_path / "f.parquet")
    table = rows(range(1, 7)).replace_schema_metadata({logits.METADATA_KEY: json.dumps({"format": 0}).encode()})
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.raises(BadInput, match="shard format 0"):
        logits.read(tmp_path / "f.parquet")


def test_merge_restores_the_order_of_the_items_by_key(shards):
    merged = logits.merge([shards[1], shards[0]], questions())
    assert merged.table["id"].to_pylist() == list(range(1, 13))
    assert merged.identity["shard"] == "merged" and merged.identity["rows"] == 12


# the others are refused by the schema or by the keys before identities are compared
COMPARED = sorted(set(logits.MOVES_A_LOGIT) - {"format", "split", "dataset", "candidate_ids", "shards"})


@pytest.mark.parametrize("field", COMPARED)
def test_shards_that_differ_in_anything_that_moves_a_logit_are_refused(shards, field):
    logits.write(logits.Logits(rows(range(7, 13)), identity(shard=1, **{field: "other"})), shards[1])
    with pytest.raises(BadInput, match=f"do not belong together \\({field}: x|do not belong together \\({field}: {{}}"):
        logits.merge(shards, questions())
    merged = logits.merge(shards, questions(), may_differ=[field])
    assert len(merged.identity[field]) == 2


def test_shards_that_differ_in_schema_or_number_are_refused(shards):
    logits.write(logits.Logits(rows(range(7, 13)), identity(shard=1, shards=3)), shards[1])
    with pytest.raises(BadInput, match=r"shards: 2 \| 3"):
        logits.merge(shards, questions())
    logits.write(logits.Logits(rows(range(7, 13)), identity(shard=0)), shards[1])
    with pytest.raises(BadInput, match=r"shards \[0, 0\] were given where 0 to 1"):
        logits.merge(shards, questions())


@pytest.mark.parametrize("field", ["model", "revision", "quantisation", "template", "model_id"])
def test_shards_of_another_configuration_are_refused_though_they_agree(shards, field):
    assert len(logits.merge(shards, questions(), expected={field: "x"}).table) == 12
    with pytest.raises(BadInput, match=f"0.parquet was made with {field} x where the configuration says other"):
        logits.merge(shards, questions(), expected={field: "other"})


def test_missing_repeated_and_foreign_questions_are_named(shards):
    with pytest.raises(BadInput, match=r"'random', 13\) is missing \(1 missing, 0 foreign\)"):
        logits.merge(shards, questions(13))
    with pytest.raises(BadInput, match="is not among the items"):
        logits.merge(shards, questions(11))
    logits.write(logits.Logits(rows(range(6, 12)), identity(shard=1)), shards[1])
    with pytest.raises(BadInput, match=r"'random', 6\) is in more than one shard"):
        logits.merge(shards, questions())


def test_a_question_about_another_image_is_refused(shards):
    other = questions().set_column(3, "image", pa.array(["z"] * 12))
    with pytest.raises(BadInput, match="another image"):
        logits.merge(shards, other)


def test_rows_taken_from_items_cover_the_merge():
    assert items.shard_rows(questions()["image"].to_pylist(), 0, 2).tolist() == list(range(6))
