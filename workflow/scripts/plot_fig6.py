"""Draw Figure 6 of the first paper."""

from pathlib import Path

from workflow.lib import answers, files, items, job
from workflow.lib.figures import fig6, style

with job.opened(snakemake) as run:
    rows, metadata = answers.load(run.input.answers)
    questions = items.load(run.input.questions)[0].to_pandas()
    frame = fig6.data(rows, questions, run.params.study, metadata["model"])
    images = Path(run.input.images).parent / "images" if run.input.images else None
    files.write_csv(frame, run.output.csv)
    style.save(fig6.draw(frame, images), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
