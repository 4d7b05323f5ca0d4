"""Read every answer in force out of the merged logits of one split."""

from workflow.lib import answers, job

with job.opened(snakemake) as run:
    table, metadata = answers.from_logits(
        run.input.logits,
        run.input.questions,
        run.params.readouts,
        run.params.precision,
        study=run.params.study,
        model=run.wildcards.model,
    )
    answers.save(table, run.output.answers, metadata)
