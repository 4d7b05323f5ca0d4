"""Check Theorem 1 on the stored answers of every model and split."""

from workflow.lib import diagnosis, files, job, statistics

with job.opened(snakemake) as run:
    sets = [statistics.load_answers(path) for path in run.input.answers]
    files.write_csv(diagnosis.agreement_table(sets, run.params.readouts), run.output.agreement)
