"""Draw Figure 4 of the first paper."""

from workflow.lib import answers, files, job
from workflow.lib.figures import fig4, style

with job.opened(snakemake) as run:
    rows = [answers.load(path)[0] for path in run.input.answers]
    frame = fig4.data(rows, run.params.study, run.params.model)
    files.write_csv(frame, run.output.csv)
    style.save(fig4.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
