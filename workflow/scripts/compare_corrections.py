"""Count every correction that stored signals allow, beside the released summaries."""

from workflow.lib import corrections, files, job, signals

with job.opened(snakemake) as run:
    measured = [signals.load(path) for path in run.input.signals]
    released = [files.read_csv(path) for path in run.input.released]
    printed = corrections.table(measured, released, run.params.study)
    swept = corrections.table(measured, [], run.params.study, run.params.betas)
    files.write_csv(printed, run.output.corrections)
    files.write_csv(swept, run.output.sweep)
