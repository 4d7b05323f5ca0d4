"""Read every answer in force out of the logits of one prompt template."""

from workflow.lib import answers, job

with job.opened(snakemake) as run:
    table, metadata = answers.from_logits(
        run.input.logits,
        run.input.questions,
        run.params.readouts,
        run.params.precision,
        study=run.params.study,
        model=run.wildcards.model,
        template=run.wildcards.template,
    )
    answers.save(table, run.output.answers, metadata)
