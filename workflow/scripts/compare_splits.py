"""Compare the answers to questions that two splits share."""

from workflow.lib import files, job, statistics

with job.opened(snakemake) as run:
    study = statistics.Study(run.params.study, run.params.models, run.params.splits, run.params.readouts)
    sets = [statistics.load_answers(path) for path in run.input.answers]
    pairs = statistics.shared_questions(sets, statistics.load_items(run.input.questions), study)
    files.write_csv(statistics.split_differences(pairs, study), run.output.differences)
    files.write_csv(statistics.split_consistency_table(pairs, study), run.output.table)
    files.write_json(run.stamp(), run.output.sidecar)
