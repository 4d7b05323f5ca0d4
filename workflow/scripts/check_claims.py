"""Judge every claim of the ledger."""

from workflow.lib import claims, files, job

with job.opened(snakemake) as run:
    study = run.params.study
    ledger = claims.load()
    tables = claims.read_tables(ledger, run.input.tables)
    files.write_csv(claims.check(ledger, tables, study, claims.load_reasons()), run.output.ledger)
