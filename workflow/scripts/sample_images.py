"""Take the questions about the first images of a split, for the comparison of engines."""

from workflow.lib import engine_agreement, items, job

with job.opened(snakemake) as run:
    table, origin = items.load(run.input.questions)
    taken = engine_agreement.sample(table, run.params.shards, run.params.images)
    items.save(taken, run.output.questions, origin)
