"""Make Table 5 of the first paper."""

from workflow.lib import files, forms, job
from workflow.lib.tables import table5

with job.opened(snakemake) as run:
    encoded = forms.load(run.input.forms)
    table = table5.build(encoded, run.params.model, run.params.note)
    table.save(run.output.csv, run.output.md, run.output.tex)
    files.write_json(run.stamp(), run.output.sidecar)
