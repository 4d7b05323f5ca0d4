"""Run the selected questions through a model under one prompt template and store their logits."""

from workflow.lib import job
from workflow.models import jobs, warm

with job.opened(snakemake) as run:
    warm.call(
        jobs.infer_shard,
        run.input.questions,
        run.input.images,
        run.input.checkpoint,
        run.output.shard,
        kind="template",
        shard=0,
        token_sets=run.params.token_sets,
        **run.conditions(),
    )
