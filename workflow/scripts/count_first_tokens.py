"""Count which token each model emits first."""

from workflow.lib import files, job, statistics

with job.opened(snakemake) as run:
    study = statistics.Study(run.params.study, run.params.models, run.params.splits, run.params.readouts)
    sets = [statistics.load_answers(path) for path in run.input.answers]
    files.write_csv(statistics.first_token_table(sets, study), run.output.first_tokens)
