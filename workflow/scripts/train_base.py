"""Train the tower and the decoder that the mini checkpoints start from."""

from workflow.lib import job
from workflow.models import warm
from workflow.models.mini import jobs

with job.opened(snakemake) as run:
    warm.call(jobs.train_base, run.params.settings, run.output.base)
