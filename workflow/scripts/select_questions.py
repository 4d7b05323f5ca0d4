"""Take the first questions of a split."""

from workflow.lib import items, job

with job.opened(snakemake) as run:
    table, origin = items.load(run.input.questions)
    items.save(table.slice(0, run.params.first), run.output.questions, origin)
