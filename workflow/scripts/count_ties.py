"""Count ties and near-ties of the readouts that compare maxima, and bin their margins."""

from workflow.lib import files, job, logits, readout_statistics, signals

with job.opened(snakemake) as run:
    stored = [(logits.read(path), path) for path in run.input.logits]
    margins, histogram = readout_statistics.ties(
        [(readout_statistics.origin_of(held), readout_statistics.stored_view(held, path)) for held, path in stored],
        [signals.load(path) for path in run.input.signals],
        run.params.readouts,
        run.params.precision,
        run.params.width,
    )
    files.write_csv(margins, run.output.margins)
    files.write_csv(histogram, run.output.histogram)
