"""Make Table 11 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table11

with job.opened(snakemake) as run:
    templates = files.read_csv(run.input.templates)
    table = table11.build(templates, run.params.model, run.params.display, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
