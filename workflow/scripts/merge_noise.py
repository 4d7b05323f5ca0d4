"""Join the shards of one noise pass after checking that they belong together."""

from workflow.lib import items, job, logits, signal_parts

with job.opened(snakemake) as run:
    questions, _ = items.load(run.input.questions)
    engine = signal_parts.noise_engine(run.wildcards.noise, run.params.noise)
    expected = run.params.expected | {"engine": engine}
    merged = logits.merge(list(run.input.shards), questions, run.params.may_differ, expected)
    logits.write(merged, run.output.logits)
