"""Make Table 9 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table9

with job.opened(snakemake) as run:
    tests = files.read_csv(run.input.tests)
    table = table9.build(tests, run.params.model, run.params.split, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
