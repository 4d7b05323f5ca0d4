"""Run one shard of a split through a model with noise in place of the image."""

from workflow.lib import job
from workflow.models import signal_jobs, warm

with job.opened(snakemake) as run:
    arguments = (run.input.questions, run.input.images, run.input.checkpoint, run.output.shard)
    warm.call(
        signal_jobs.infer_noise,
        *arguments,
        kind=run.wildcards.noise,
        noise=run.params.noise,
        shard=int(run.wildcards.shard),
        model=run.wildcards.model,
        settings=run.params.settings,
        run=run.params.run,
        token_sets=run.params.token_sets,
        study=run.params.study,
        seed=run.params.seed,
        code=run.params.code,
        environment=run.params.environment,
    )
