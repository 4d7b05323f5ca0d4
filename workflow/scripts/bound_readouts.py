"""Bootstrap F1 of every readout and the gap of F1 between pairs of readouts."""

from workflow.lib import files, job, readout_statistics, statistics

with job.opened(snakemake) as run:
    frame = readout_statistics.intervals(
        [statistics.load_answers(path) for path in run.input.answers],
        [files.read_csv(path) for path in run.input.counts],
        statistics.load_items(run.input.questions),
        run.params.study,
        run.params.readouts,
        run.params.pairs,
        run.params.units,
        run.params.level,
        run.params.resamples,
        run.params.seed,
    )
    files.write_csv(frame, run.output.intervals)
