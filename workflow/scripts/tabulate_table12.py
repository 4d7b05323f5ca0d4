"""Make Table 12 of the first paper."""

from workflow.lib import files, job, survey
from workflow.lib.tables import table12

with job.opened(snakemake) as run:
    table = table12.build(survey.load(), run.params.study, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp() | {"published": dict(run.params.published)}, run.output.sidecar)
