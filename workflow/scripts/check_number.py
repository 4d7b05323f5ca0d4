"""Recompute one claim and say what became of it."""

from workflow.lib import claims, files, job

with job.opened(snakemake) as run:
    ledger = claims.load()
    tables = claims.read_tables(ledger, run.input.tables)
    judged = claims.check(ledger, tables, run.params.study, claims.load_reasons()).set_index("claim", drop=False)
    found = claims.as_json(judged.loc[run.wildcards.claim])
    files.write_json(found | {"origin": run.stamp()}, run.output.number)
