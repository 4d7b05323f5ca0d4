"""Run one shard of a split through a model with noise in place of the image."""

from workflow.lib import job
from workflow.models import signal_jobs, warm

with job.opened(snakemake) as run:
    warm.call(
        signal_jobs.infer_noise,
        run.input.questions,
        run.input.images,
        run.input.checkpoint,
        run.output.shard,
        kind=run.wildcards.noise,
        noise=run.params.noise,
        shard=int(run.wildcards.shard),
        token_sets=run.params.token_sets,
        **run.conditions(),
    )
