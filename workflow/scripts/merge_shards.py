"""Join the shards of one split after checking that they belong together."""

from workflow.lib import items, job, logits

with job.opened(snakemake) as run:
    questions, _ = items.load(run.input.questions)
    merged = logits.merge(list(run.input.shards), questions, run.params.may_differ, run.params.expected)
    logits.write(merged, run.output.logits)
