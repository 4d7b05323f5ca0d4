"""Draw Figure 3 of the first paper."""

from workflow.lib import answers, files, job
from workflow.lib.figures import fig3, style

with job.opened(snakemake) as run:
    rows, metadata = answers.load(run.input.answers)
    frame = fig3.data(rows, run.params.study, metadata["model"])
    files.write_csv(frame, run.output.csv)
    style.save(fig3.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
