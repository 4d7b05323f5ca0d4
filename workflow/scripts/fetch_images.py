"""Fetch the images that the items name and write the table of their hashes."""

from workflow.lib import job
from workflow.models import fetching

with job.opened(snakemake) as run:
    local_folder, offline = run.params.place
    fetching.fetch_images(
        list(run.input.questions),
        run.output.table,
        way=run.params.way,
        origin=run.params.origin,
        local_folder=local_folder,
        offline=offline,
    )
