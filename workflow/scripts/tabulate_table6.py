"""Make Table 6 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table6

with job.opened(snakemake) as run:
    table = table6.build(table6.load(), run.params.study, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp() | {"published": dict(run.params.published)}, run.output.sidecar)
