"""Collect the counts of the released correction runs."""

from workflow.lib import diagnostic, files, job, records

with job.opened(snakemake) as run:
    declared = records.Expected(**run.params.declared)
    runs = [diagnostic.CorrectionRun(**entry) for entry in run.params.runs]
    counts = diagnostic.released_corrections(run.input.summaries, runs, run.params.model, declared)
    files.write_csv(counts.assign(study=run.params.study), run.output.counts)
