"""Bring the released records of one prompt template into the layout of answers."""

from workflow.lib import answers, job, records

with job.opened(snakemake) as run:
    declared = records.Expected(**run.params.declared)
    frame = records.read(run.input.records, "token_audit", run.params.dataset, declared)
    metadata = {
        "study": run.params.study,
        "model": run.wildcards.model,
        "basis": "released records",
        "template": run.wildcards.template,
        "model_id": declared.model_id,
        "prompt_mode": declared.prompt_mode,
        "source": dict(run.params.source),
    }
    answers.save(answers.to_table(frame), run.output.answers, metadata)
