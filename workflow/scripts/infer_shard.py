"""Run one shard of a split through a model and store its logits."""

from workflow.lib import job
from workflow.models import jobs, warm

with job.opened(snakemake) as run:
    warm.call(
        jobs.infer_shard,
        run.input.questions,
        run.input.images,
        run.input.checkpoint,
        run.output.shard,
        shard=int(run.wildcards.shard),
        token_sets=run.params.token_sets,
        **run.conditions(),
    )
