"""Draw Figure 2 of the first paper."""

from workflow.lib import files, job
from workflow.lib.figures import fig2, style

with job.opened(snakemake) as run:
    confusion = files.read_csv(run.input.confusion)
    frame = fig2.data(confusion, run.params.model, run.params.split)
    files.write_csv(frame, run.output.csv)
    style.save(fig2.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
