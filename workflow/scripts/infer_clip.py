"""Measure the cosines of both CLIP models for all questions of a split."""

from workflow.lib import job
from workflow.models import signal_jobs, warm

with job.opened(snakemake) as run:
    warm.call(
        signal_jobs.infer_clip,
        run.input.questions,
        run.input.images,
        run.input.checkpoint,
        run.output.similarities,
        clip=dict(zip(run.params.which, run.input.clip, strict=True)),
        pattern=run.params.pattern,
        **run.conditions(),
    )
