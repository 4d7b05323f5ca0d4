"""Make Table 4 of the first paper."""

from workflow.lib import files, job
from workflow.lib.tables import table4

with job.opened(snakemake) as run:
    confusion = files.read_csv(run.input.confusion)
    table = table4.build(confusion, run.params.display, run.params.string_parse, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
