"""Collect what released records state about a tokenizer: how it encodes the surface forms of yes and no."""

from workflow.lib import files, forms, job

with job.opened(snakemake) as run:
    table = forms.from_records(run.input.records, run.params.study, run.wildcards.model)
    files.write_csv(table, run.output.forms)
