"""Draw Figure 7 of the first paper."""

from workflow.lib import files, job
from workflow.lib.figures import fig7, style

with job.opened(snakemake) as run:
    corrections = files.read_csv(run.input.corrections)
    frame = fig7.data(corrections, run.params.model, run.params.split, run.params.variant)
    files.write_csv(frame, run.output.csv)
    style.save(fig7.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
