"""Make Table 8 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table8

with job.opened(snakemake) as run:
    rows = files.read_csv(run.input.corrections)
    table = table8.build(rows, run.params.model, run.params.split, run.params.variant, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
