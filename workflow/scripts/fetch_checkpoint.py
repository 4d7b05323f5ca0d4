"""Fetch a checkpoint at its revision, verify it and write its manifest."""

from pathlib import Path

from workflow.lib import job
from workflow.models import hub

with job.opened(snakemake) as run:
    local_folder, offline = run.params.place
    hub.fetch_checkpoint(
        run.wildcards.repository,
        folder=Path(run.output.checkpoint).parent,
        **run.params.repository,
        code_files=run.params.code_files,
        known=run.params.known,
        local_folder=local_folder,
        offline=offline,
    )
