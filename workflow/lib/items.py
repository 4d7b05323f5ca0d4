"""Polling questions: POPE's question files and the items table.

An item is one question about one image. Its key is (dataset, split, id): every split of POPE numbers its
questions from 1, so an id alone is no key.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files
from workflow.lib.errors import BadInput

KEY = ("dataset", "split", "id")
LABELS = ("yes", "no")
METADATA_KEY = b"readout_audit"
KEY_FIELDS = (
    pa.field("dataset", pa.string(), nullable=False),
    pa.field("split", pa.string(), nullable=False),
    pa.field("id", pa.int64(), nullable=False),
)
"""The columns of `KEY`, with which every table of questions, answers or signals begins."""
SCHEMA = pa.schema(
    [
        *KEY_FIELDS,
        pa.field("image", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("label", pa.string(), nullable=False),
        pa.field("object", pa.string(), nullable=False),
    ]
)
# one revision of the adversarial COCO file ends 57 questions in "imange?"
_QUESTION = re.compile(r"^Is there an? (?P<object>.+) in the (?:image|imange)\s*\?$", re.IGNORECASE)


@dataclass(frozen=True)
class Expected:
    """What a question file must hold: rows in all, questions an image, and its SHA-256 where one is known.

    ``rows`` is split into equally many yes and no labels; an empty ``sha256`` is not checked.
    """

    rows: int
    per_image: int
    sha256: str = ""


def read_polls(path: str | Path, dataset: str, split: str, expected: Expected) -> pa.Table:
    """Read one POPE question file (JSON lines) and check all that its users rely on.

    Checked: hash, row count, fields and types, ids 1..n in order, labels that alternate yes, no, and the number
    of questions an image. A JSON array, as the A-OKVQA and GQA files have, is refused with a sentence that
    says so.

    Returns
    -------
    pyarrow.Table
        One row a question in file order, schema `SCHEMA`.

    Raises
    ------
    BadInput
        Names the file, the row, what was expected and what to do.
    """
    path = Path(path)
    found_hash = files.sha256(path)
    if expected.sha256 and found_hash != expected.sha256:
        raise BadInput(
            f"{path} has SHA-256 {found_hash} but {expected.sha256} is declared for split {split}: this is "
            "another revision of the questions; fetch the declared one or change the declaration."
        )
    text = path.read_text(encoding="utf-8")
    if text.lstrip().startswith("["):
        raise BadInput(f"{path} is one JSON array, but one JSON object a line is expected: write one question a line.")
    rows = [_poll(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    labels = [row["label"] for row in rows]
    count = {label: labels.count(label) for label in LABELS}
    if len(rows) != expected.rows or count["yes"] != count["no"]:
        raise BadInput(
            f"{path} has {len(rows)} rows ({count['yes']} yes, {count['no']} no) but {expected.rows} rows, half of "
            f"them yes, are declared for split {split} (its SHA-256 is {found_hash[:12]}…): use the declared "
            "revision or correct dataset.rows."
        )
    for position, row in enumerate(rows):
        if row["question_id"] != position + 1:
            raise BadInput(
                f"{path} row {position + 1}: question_id {row['question_id']} where {position + 1} is expected; ids "
                "run from 1 without gaps or repeats, so restore the original file."
            )
        if row["label"] != LABELS[position % 2]:
            raise BadInput(
                f"{path} row {position + 1}: label {row['label']!r} where {LABELS[position % 2]!r} is expected; POPE "
                "alternates yes and no, so restore the original order."
            )
        first = position - position % expected.per_image
        if row["image"] != rows[first]["image"]:
            raise BadInput(
                f"{path} row {position + 1}: image {row['image']} where {rows[first]['image']} is expected; each image "
                f"has {expected.per_image} questions in a row, so restore the original order."
            )
    return pa.Table.from_pylist(
        [
            {
                "dataset": dataset,
                "split": split,
                "id": row["question_id"],
                "image": row["image"],
                "question": row["text"],
                "label": row["label"],
                "object": object_of(row["text"]),
            }
            for row in rows
        ],
        schema=SCHEMA,
    )


def _poll(path: Path, number: int, line: str) -> dict:
    try:
        row = json.loads(line)
    except ValueError:
        raise BadInput(
            f"{path} line {number} is not JSON (it begins {line[:40]!r}): the file is cut or is not a question file; "
            "fetch it again."
        ) from None
    if not isinstance(row, dict):
        raise BadInput(f"{path} line {number} is not a JSON object: write one question object a line.")
    for field, kind in (("question_id", int), ("image", str), ("text", str), ("label", str)):
        if not isinstance(row.get(field), kind) or isinstance(row.get(field), bool):
            raise BadInput(
                f"{path} line {number}: field {field!r} is {row.get(field)!r} where a {kind.__name__} is expected: "
                "correct that line."
            )
    if row["label"] not in LABELS:
        raise BadInput(f"{path} line {number}: label {row['label']!r} where yes or no is expected: correct that line.")
    return row


def object_of(question: str) -> str:
    """Return the object a poll asks about, or "" where the question has another form.

    The misspelt ending "in the imange?" counts as the usual one.
    """
    match = _QUESTION.match(question.strip())
    return match["object"] if match else ""


def save(table: pa.Table, path: str | Path, metadata: dict) -> None:
    """Write items as Parquet; ``metadata`` (dataset, revision, sha256 and so on) is kept in the file."""
    table = table.cast(SCHEMA).replace_schema_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()})
    with files.write_atomically(path) as temporary:
        pq.write_table(table, temporary)


def load(path: str | Path) -> tuple[pa.Table, dict]:
    """Return the items of a split and the metadata of the file; BadInput where the schema is another."""
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a readable Parquet file ({error}): rebuild it.") from None
    metadata = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    for field in SCHEMA:
        if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
            raise BadInput(f"{path} has no column {field.name!r} of type {field.type}: rebuild the items.")
    return table.select(SCHEMA.names), metadata


def shard_rows(images: Sequence[str], shard: int, shards: int) -> np.ndarray:
    """Return the positions of the rows of one shard.

    All questions of an image stay in one shard, because engines share work within an image. Images are cut
    into ``shards`` blocks of nearly equal size in order of first appearance; blocks may be empty where there
    are fewer images than shards.

    Parameters
    ----------
    images : sequence of str, length n
        Image of each row.
    shard, shards : int
        Number of the block, from 0, and how many there are.

    Returns
    -------
    ndarray of int64
        Row positions in ascending order.
    """
    order: dict[str, int] = {}
    for image in images:
        order.setdefault(image, len(order))
    blocks = np.array_split(np.arange(len(order)), shards)
    numbers = np.fromiter((order[image] for image in images), dtype=np.int64, count=len(images))
    return np.flatnonzero(np.isin(numbers, blocks[shard]))
