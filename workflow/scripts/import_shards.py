"""Verify shards that another machine made and put them in place."""

import sys
from pathlib import Path

from workflow.lib import files, items, job, shard_import

with job.opened(snakemake) as run:
    table = Path(run.params.places["images"])
    expected = shard_import.Expected(
        run.params.expected,
        {split: items.load(path) for split, path in zip(run.params.splits, run.input.questions, strict=True)},
        files.sha256(table) if table.is_file() else "",
        run.params.may_differ,
        lambda model, split, shard: Path(run.params.places["results"], "logits", model, split, f"{shard}.parquet"),
    )
    found = shard_import.verify(run.params.shards, expected)
    shard_import.forget(shard_import.put_in_place(found))
    for shard in found:
        print(f"{shard.path} -> {shard.target}{' (there already)' if shard.present else ''}", file=sys.stderr)
