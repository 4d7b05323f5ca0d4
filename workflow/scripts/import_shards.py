"""Verify shards that another machine made and put them in place."""

import sys
from pathlib import Path

from workflow.lib import files, items, job, shard_import
from workflow.lib.shard_kinds import Slot

with job.opened(snakemake) as run:
    table = Path(run.params.images)
    expected = shard_import.Expected(
        [Slot(**slot) for slot in run.params.slots],
        {path: items.load(path) for path in run.input.questions},
        files.sha256(table) if table.is_file() else "",
        run.params.may_differ,
    )
    found = shard_import.verify(run.params.shards, expected)
    shard_import.forget(shard_import.put_in_place(found))
    for shard in found:
        print(f"{shard.path} -> {shard.target}{' (there already)' if shard.present else ''}", file=sys.stderr)
