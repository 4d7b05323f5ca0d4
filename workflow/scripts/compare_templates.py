"""Count the answers under every prompt template of one model against the labels."""

from workflow.lib import files, job, templates

with job.opened(snakemake) as run:
    paths = dict(zip(run.params.templates, run.input.answers, strict=True))
    table = templates.table(paths, run.params.study, run.params.model, run.params.readouts)
    files.write_csv(table, run.output.templates)
