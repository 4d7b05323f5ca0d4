"""Fetch one question file at its revision and verify it."""

from workflow.lib import job
from workflow.models import fetching

with job.opened(snakemake) as run:
    fetching.fetch_questions(run.params.source, run.output.file, *run.params.place)
