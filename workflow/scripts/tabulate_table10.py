"""Make Table 10 of the first paper."""

from workflow.lib import files, forms, job
from workflow.lib.tables import table10

with job.opened(snakemake) as run:
    encoded = forms.load(run.input.forms)
    table = table10.build(encoded, run.params.model, run.params.display, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
