"""Read one question file, check it and store it as items."""

from workflow.lib import files, items, job

with job.opened(snakemake) as run:
    expected = items.Expected(run.params.rows, run.params.per_image, run.params.sha256)
    split = run.wildcards.split
    table = items.read_polls(run.input.polls, run.params.dataset, split, expected)
    origin = {
        "dataset": run.params.dataset,
        "revision": run.params.revision,
        "split": split,
        "sha256": files.sha256(run.input.polls),
    }
    items.save(table, run.output.questions, origin)
