"""Draw Figure 8 of the first paper."""

from workflow.lib import files, job, signals
from workflow.lib.figures import fig8, style

with job.opened(snakemake) as run:
    rows, metadata = signals.load(run.input.signals)
    frame = fig8.data(rows, run.params.study, metadata["model"])
    files.write_csv(frame, run.output.csv)
    style.save(fig8.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
