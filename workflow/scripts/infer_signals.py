"""Run one shard of the instrumented pass and store its signals."""

from workflow.lib import job
from workflow.models import signal_jobs, warm

with job.opened(snakemake) as run:
    warm.call(
        signal_jobs.infer_signals,
        run.input.questions,
        run.input.images,
        run.input.checkpoint,
        run.output.shard,
        shard=int(run.wildcards.shard),
        signals=run.params.signals,
        **run.conditions(),
    )
