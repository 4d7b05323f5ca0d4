"""Test pairs of readouts on the same questions."""

from workflow.lib import files, job, readout_statistics, statistics

with job.opened(snakemake) as run:
    sets = [statistics.load_answers(path) for path in run.input.answers]
    frame = readout_statistics.paired_tests(sets, run.params.pairs, run.params.method)
    files.write_csv(frame, run.output.mcnemar)
