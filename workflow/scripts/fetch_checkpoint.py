"""Fetch a checkpoint at its revision, verify it and write its manifest, in its folder and beside it."""

from pathlib import Path

from workflow.lib import files, job
from workflow.models import hub

with job.opened(snakemake) as run:
    local_folder, offline = run.params.place
    hub.fetch_checkpoint(
        run.wildcards.repository,
        folder=Path(run.output.seal).parent,
        **run.params.repository,
        code_files=run.params.code_files,
        known=run.params.known,
        local_folder=local_folder,
        offline=offline,
    )
    files.write_json(files.read_json(run.output.seal), run.output.manifest)
