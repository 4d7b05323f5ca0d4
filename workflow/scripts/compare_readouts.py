"""Pair the two-token rule with the eight-token rule, question by question."""

from workflow.lib import files, job, statistics

with job.opened(snakemake) as run:
    study = statistics.Study(run.params.study, run.params.models, run.params.splits, run.params.readouts)
    sets = [statistics.load_answers(path) for path in run.input.answers]
    files.write_csv(statistics.transition_table(sets, study), run.output.transitions)
    files.write_csv(statistics.protocol_gap_table(sets, study), run.output.protocol_gap)
