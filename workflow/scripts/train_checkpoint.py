"""Train one mini model and write its checkpoint."""

from pathlib import Path

from workflow.lib import job
from workflow.models import warm
from workflow.models.mini import jobs

with job.opened(snakemake) as run:
    folder = Path(run.output.checkpoint).parent
    warm.call(jobs.train_checkpoint, run.wildcards.model, run.params.settings, run.input.base, str(folder))
