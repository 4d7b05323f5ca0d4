"""Make Table 1 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table1

with job.opened(snakemake) as run:
    first_tokens = files.read_csv(run.input.first_tokens)
    table = table1.build(first_tokens, run.params.model, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
