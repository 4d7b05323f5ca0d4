"""Count the answers of every model, split and readout against the labels."""

from workflow.lib import files, job, statistics

with job.opened(snakemake) as run:
    study = statistics.Study(run.params.study, run.params.models, run.params.splits, run.params.readouts)
    sets = [statistics.load_answers(path) for path in run.input.answers]
    counts = [files.read_csv(path) for path in run.input.counts]
    files.write_csv(statistics.confusion_table(sets, counts, study), run.output.confusion)
