"""Print what of inference is done and missing, and what the rest will cost."""

from pathlib import Path

from workflow.lib import job, plan

with job.opened(snakemake) as run:
    results, published = Path(run.params.results), Path(run.params.published)
    works = [plan.Work(**work) for work in run.params.works]
    known = plan.speeds(works, results, published / "speeds.csv", run.params.models)
    fetched = plan.download_sizes(published / "sizes.csv", run.params.fetched) if run.params.fetched else None
    print("\n".join(plan.lines(plan.count(works), known, fetched)))
