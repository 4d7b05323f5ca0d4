"""Run the sampled questions through a model with the engine that the study does not use, and store their logits."""

from workflow.lib import job
from workflow.models import jobs, warm

with job.opened(snakemake) as run:
    warm.call(
        jobs.infer_shard,
        run.input.questions,
        run.input.images,
        run.input.checkpoint,
        run.output.shard,
        kind="engine",
        shard=0,
        token_sets=run.params.token_sets,
        **run.conditions(),
    )
