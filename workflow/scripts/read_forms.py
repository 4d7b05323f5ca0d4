"""Collect how the tokenizer in force encodes the surface forms, out of the merged logits."""

from workflow.lib import files, forms, job

with job.opened(snakemake) as run:
    table = forms.from_logits(run.input.logits, run.params.study, run.wildcards.model)
    files.write_csv(table, run.output.forms)
