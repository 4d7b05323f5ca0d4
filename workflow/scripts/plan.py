"""Print shards done and missing, and what the rest will cost."""

from pathlib import Path

from workflow.lib import job, plan

with job.opened(snakemake) as run:
    results, models = Path(run.params.results), run.params.models
    table = plan.count(results, list(models), run.params.splits, run.params.shards, run.params.rows)
    known = plan.speeds(results, models, Path(run.params.published, "speeds.csv"))
    here = {name: (results / "checkpoints" / name / "checkpoint.json").is_file() for name in run.params.repositories}
    sizes = Path(run.params.published, "sizes.csv")
    print("\n".join(plan.lines(table, known, run.params.repositories, sizes, here if run.params.fetched else None)))
