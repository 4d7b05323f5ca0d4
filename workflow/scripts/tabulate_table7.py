"""Make Table 7 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table7

with job.opened(snakemake) as run:
    transitions = files.read_csv(run.input.transitions)
    table = table7.build(transitions, run.params.model, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
