"""Train one mini CLIP model and write its checkpoint."""

from pathlib import Path

from workflow.lib import job
from workflow.models import signal_jobs, warm

with job.opened(snakemake) as run:
    folder = Path(run.output.checkpoint).parent
    warm.call(signal_jobs.train_clip, run.wildcards.clip, run.params.settings, run.input.base, str(folder))
