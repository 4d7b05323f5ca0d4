"""Fetch one released file, or copy it from a local folder, and verify it."""

from workflow.lib import job, sources

with job.opened(snakemake) as run:
    sources.fetch(sources.Source(**run.params.source), run.output.file, run.params.folder)
