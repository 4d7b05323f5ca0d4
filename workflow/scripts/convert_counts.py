"""Turn one model's published metrics into confusion counts."""

from workflow.lib import files, job, records

with job.opened(snakemake) as run:
    declared = [records.Expected(**split) for split in run.params.declared]
    counts = records.published_counts(run.input.metrics, run.wildcards.model, run.params.string_parse, declared)
    files.write_csv(counts, run.output.counts)
