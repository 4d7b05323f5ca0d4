"""Bring the released records of the instrumented pass into the layout of signals."""

from workflow.lib import diagnostic, job, records, signals

with job.opened(snakemake) as run:
    declared = records.Expected(**run.params.declared)
    frame, origin = diagnostic.read(run.input.records, run.params.dataset, declared)
    metadata = {
        "study": run.params.study,
        "model": run.params.model,
        "split": declared.split,
        "basis": "released records",
        "model_id": declared.model_id,
        "source": dict(run.params.source),
    }
    signals.save(frame, run.output.signals, metadata | origin)
