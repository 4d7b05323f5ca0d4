"""Read every answer in force out of the merged logits of one split."""

from workflow.lib import answers, items, job, logits

with job.opened(snakemake) as run:
    stored = logits.read(run.input.logits)
    questions, _ = items.load(run.input.questions)
    table, warnings = answers.read_all(stored, questions, run.params.readouts, run.params.precision, run.input.logits)
    metadata = {
        "study": run.params.study,
        "model": run.wildcards.model,
        "basis": "logits",
        "precision": run.params.precision,
        "dynamic": stored.identity["token_sets"]["dynamic_single"],
        "candidate_ids": list(stored.candidate_ids),
        "candidate_texts": stored.identity["candidate_texts"],
        "warnings": warnings,
    }
    answers.save(table, run.output.answers, metadata)
