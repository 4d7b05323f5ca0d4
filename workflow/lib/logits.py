"""The shard contract: what is stored of a model's first answer token, and when shards may be joined.

One row a question holds enough of the next-token distribution at the scored position to recompute any readout
without the model: the raw logit and rank of every declared candidate id, the log-sum-exp over the vocabulary
(so that probabilities and option mass follow), the top ids, and the greedily generated ids kept apart from the
prompt. The metadata of the file states its identity: all that may move a logit.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files
from workflow.lib.errors import BadInput

TOP = 32
"""How many of the highest logits are stored with their ids."""
GENERATED = 6
"""How many tokens are generated greedily, at most."""
FORMAT = 2
"""Version of this contract; a change in the meaning of a column or in the fields of the identity raises it."""
METADATA_KEY = b"readout_audit"

AS_LOADED = ("parameter_types", "attention_used", "quantised")
"""Identity fields that are read from the loaded model: parameters by number type, attention kernel by class, and all
about 4-bit layers (which, how, on what path, by which bitsandbytes), empty without any. dtype, quantisation and
attention say what was asked."""
MOVES_A_LOGIT = (
    "format",
    "study",
    "model",
    "model_id",
    "revision",
    "checkpoint",
    "tokenizer_class",
    "tokenizer",
    "template",
    "template_text",
    "dataset",
    "dataset_revision",
    "dataset_sha256",
    "images_sha256",
    "split",
    "shards",
    "dtype",
    "quantisation",
    "attention",
    *AS_LOADED,
    "batch_size",
    "engine",
    "device",
    "device_name",
    "threads",
    "libraries",
    "seed",
    "code",
    "candidate_ids",
    "candidate_texts",
    "candidate_pieces",
    "forms",
    "token_sets",
)
"""Identity fields that must be equal in all shards of one (model, split)."""
DESCRIBES = ("shard", "rows")
"""Identity fields that differ between shards by nature."""


@dataclass(frozen=True)
class Logits:
    """Rows of one shard or of one merged split, with the identity they were made under."""

    table: pa.Table
    identity: dict

    @property
    def candidate_ids(self) -> tuple[int, ...]:
        """Declared candidate ids, ascending."""
        return tuple(self.identity["candidate_ids"])

    @property
    def candidate_logits(self) -> np.ndarray:
        """Raw logits of the candidates, float32, shape (rows, candidates)."""
        columns = [self.table[f"logit_{token}"].to_numpy() for token in self.candidate_ids]
        return np.stack(columns, axis=1) if columns else np.zeros((len(self.table), 0), np.float32)


def schema(candidate_ids: Sequence[int]) -> pa.Schema:
    """Return the one schema of a shard with these candidates; an empty shard has it too."""

    def column(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    return pa.schema(
        [
            column("dataset", pa.string()),
            column("split", pa.string()),
            column("id", pa.int64()),
            column("image", pa.string()),
            column("prompt_sha256", pa.string()),
            column("image_tokens", pa.int32()),
            column("argmax_id", pa.int32()),
            column("argmax_text", pa.string()),
            column("logsumexp", pa.float32()),
            *(column(f"logit_{token}", pa.float32()) for token in candidate_ids),
            *(column(f"rank_{token}", pa.int32()) for token in candidate_ids),
            column("top_ids", pa.list_(pa.int32(), TOP)),
            column("top_logits", pa.list_(pa.float32(), TOP)),
            column("generated_ids", pa.list_(pa.int32())),
            column("generated_text", pa.string()),
            column("returned_text", pa.string()),
            column("returned_prompt", pa.bool_()),
            column("seconds", pa.float32()),
        ]
    )


def check(table: pa.Table, identity: Mapping, name: str) -> None:
    """Refuse rows that break the contract.

    Missing values, NaN and infinities are told apart, each with the column and the first row that holds one.
    Also refused: a repeated key, a candidate above the argmax, a log-sum-exp below a logit, top ids out of
    order, and rows of another dataset or split than the identity states.

    Raises
    ------
    BadInput
        One sentence that begins with ``name``.
    """
    missing = [field for field in (*MOVES_A_LOGIT, *DESCRIBES) if field not in identity]
    if missing:
        raise BadInput(f"{name} lacks {', '.join(missing)} in its metadata: it was not written by this pipeline.")
    expected = schema(identity["candidate_ids"])
    for field in expected:
        if field.name not in table.column_names:
            raise BadInput(f"{name} has no column {field.name!r}: run that shard again.")
        found = table.schema.field(field.name).type
        if found != field.type:
            raise BadInput(
                f"{name}: column {field.name!r} is {found} where {field.type} is declared: run that shard again."
            )
        if table[field.name].null_count:
            row = table[field.name].is_null().to_pylist().index(True)
            raise BadInput(f"{name} row {row}: {field.name!r} is missing (null): run that shard again.")
    if len(table) != identity["rows"]:
        raise BadInput(f"{name} has {len(table)} rows where its metadata declares {identity['rows']}: it was cut.")
    if not len(table):
        return
    for field in ("dataset", "split"):
        other = set(table[field].to_pylist()) - {identity[field]}
        if other:
            raise BadInput(f"{name}: {field} {min(other)!r} in a row where {identity[field]!r} is declared.")
    ids = table["id"].to_numpy()
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise BadInput(f"{name}: id {values[counts > 1][0]} occurs more than once in split {identity['split']}.")
    top_ids = _matrix(table["top_ids"])
    top = _matrix(table["top_logits"])
    columns = {f"logit_{token}": table[f"logit_{token}"].to_numpy() for token in identity["candidate_ids"]}
    for column, numbers in {**columns, "logsumexp": table["logsumexp"].to_numpy(), "top_logits": top}.items():
        _finite(numbers, ids, column, name)
    if (np.diff(top, axis=1) > 0).any():
        raise BadInput(f"{name}: top_logits are not in descending order.")
    if (top_ids[:, 0] != table["argmax_id"].to_numpy()).any():
        raise BadInput(f"{name}: argmax_id is not the first of top_ids.")
    for column, numbers in columns.items():
        above = numbers > top[:, 0]
        if above.any():
            raise BadInput(f"{name} id {ids[above][0]}: {column} is above the logit of the argmax.")
    if (table["logsumexp"].to_numpy() < top[:, 0] - 1e-3).any():
        raise BadInput(f"{name}: logsumexp is below the largest logit, so it is not taken over the vocabulary.")


def _finite(numbers: np.ndarray, ids: np.ndarray, column: str, name: str) -> None:
    for problem, found in (("NaN", np.isnan(numbers)), ("infinite", np.isinf(numbers))):
        if found.any():
            row = np.flatnonzero(found.reshape(len(ids), -1).any(axis=1))[0]
            raise BadInput(
                f"{name} id {ids[row]}: {column} is {problem}; raw logits are finite, so take them before any logits "
                "processor and run that shard again."
            )


def _matrix(column: pa.ChunkedArray) -> np.ndarray:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        combined = pa.concat_arrays(combined.chunks)
    return combined.flatten().to_numpy().reshape(len(column), -1)


def write(logits: Logits, path: str | Path) -> None:
    """Write a shard: checked, written to a temporary name, read back, renamed.

    Raises
    ------
    BadInput
        Where the rows break the contract; nothing is left behind then.
    """
    identity = {**logits.identity, "rows": len(logits.table)}
    check(logits.table, identity, str(path))
    table = logits.table.cast(schema(identity["candidate_ids"]))
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(identity, sort_keys=True).encode()})
    with files.write_atomically(path) as temporary:
        pq.write_table(table, temporary)
        if not read(temporary).table.equals(table):
            raise OSError(f"{path} did not read back as it was written: check the disk.")


def read(path: str | Path) -> Logits:
    """Read and check a shard or a merged split.

    Raises
    ------
    BadInput
        Where the file is no Parquet file, carries no identity, or breaks the contract.
    """
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a whole Parquet file ({error}): delete it and run that shard again.") from None
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    if stored is None:
        raise BadInput(f"{path} carries no identity in its metadata: it was not written by this pipeline.")
    identity = json.loads(stored)
    if identity.get("format") != FORMAT:
        raise BadInput(
            f"{path} is in shard format {identity.get('format')} where {FORMAT} is expected: run that shard again."
        )
    check(table, identity, str(path))
    return Logits(table, identity)


def differing(
    first: Mapping, second: Mapping, may_differ: Sequence[str] = (), among: Sequence[str] = MOVES_A_LOGIT
) -> list[str]:
    """Return the fields, by default those that may move a logit, that are not equal, each as ``field: a | b``.

    Of a field that is a mapping in both, only the entries that differ are shown.
    """
    fields = [field for field in among if field not in may_differ]
    return [
        f"{field}: {_short(a)} | {_short(b)}"
        for field in fields
        if first.get(field) != second.get(field)
        for a, b in [_only_differing(first.get(field), second.get(field))]
    ]


def _only_differing(first: object, second: object) -> tuple[object, object]:
    if not (isinstance(first, dict) and isinstance(second, dict) and first and second):
        return first, second
    names = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    return tuple({name: held[name] for name in names if name in held} for held in (first, second))


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def merge(
    paths: Sequence[str | Path],
    items: pa.Table,
    may_differ: Sequence[str] = (),
    expected: Mapping | None = None,
) -> Logits:
    """Join the shards of one (model, split) and restore the order of the items by key.

    Parameters
    ----------
    paths : sequence of path
        All shards, in any order.
    items : pyarrow.Table
        The questions of the split; every one must be answered exactly once, with the same image.
    may_differ : sequence of str
        Identity fields in which shards may differ all the same, such as ``device_name`` for shards from
        several machines. The merged identity then lists what was found.
    expected : mapping, optional
        Identity fields as the configuration has them now; a shard left over from another model, revision,
        quantisation or prompt is refused by them even where all shards agree with each other.

    Raises
    ------
    BadInput
        Names the two files and the differing fields, or the missing, repeated or foreign keys.
    """
    shards = [read(path) for path in paths]
    first = shards[0]
    for path, shard in zip(paths, shards, strict=True):
        for field, value in (expected or {}).items():
            if field not in may_differ and shard.identity[field] != value:
                raise BadInput(
                    f"{path} was made with {field} {_short(shard.identity[field])} where the configuration says "
                    f"{_short(value)}: delete it to run it again, or restore the configuration."
                )
    for path, shard in zip(paths[1:], shards[1:], strict=True):
        fields = differing(first.identity, shard.identity, may_differ)
        if fields:
            raise BadInput(
                f"{path} and {paths[0]} do not belong together ({'; '.join(fields)}): run one of them again under the "
                "other's conditions."
            )
    folder = Path(paths[0]).parent
    numbers = sorted(shard.identity["shard"] for shard in shards)
    if numbers != list(range(first.identity["shards"])):
        last = first.identity["shards"] - 1
        raise BadInput(f"{folder}: shards {numbers} were given where 0 to {last} are expected.")
    table = pa.concat_tables([shard.table for shard in shards])
    order = {key: row for row, key in enumerate(_keys(table))}
    if len(order) != len(table):
        keys = _keys(table)
        repeated = next(key for row, key in enumerate(keys) if order[key] != row)
        raise BadInput(f"{folder}: question {repeated} is in more than one shard.")
    wanted = _keys(items)
    absent = [key for key in wanted if key not in order]
    foreign = order.keys() - set(wanted)
    if absent or foreign:
        what = f"question {absent[0]} is missing" if absent else f"question {min(foreign)} is not among the items"
        raise BadInput(
            f"{folder}: {what} ({len(absent)} missing, {len(foreign)} foreign): the shards answer "
            "another question file; run them again."
        )
    table = table.take([order[key] for key in wanted])
    moved = [
        key for key, a, b in zip(wanted, table["image"].to_pylist(), items["image"].to_pylist(), strict=True) if a != b
    ]
    if moved:
        raise BadInput(f"{folder}: question {moved[0]} was asked about another image than the items say.")
    identity = {**first.identity, "shard": "merged", "rows": len(table)}
    for field in may_differ:
        found = sorted({_short(shard.identity.get(field)) for shard in shards})
        if len(found) > 1:
            identity[field] = found
    return Logits(table.replace_schema_metadata(None), identity)


def _keys(table: pa.Table) -> list[tuple[str, str, int]]:
    return list(zip(*(table[name].to_pylist() for name in ("dataset", "split", "id")), strict=True))
