"""Print the tally of the ledger."""

from workflow.lib import claims, files, job

with job.opened(snakemake) as run:
    print(claims.tally(files.read_csv(run.input.ledger), run.params.study), flush=True)
