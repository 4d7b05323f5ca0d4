"""Draw Figure 5 of the first paper."""

from workflow.lib import files, job
from workflow.lib.figures import fig5, style

with job.opened(snakemake) as run:
    first_tokens = files.read_csv(run.input.first_tokens)
    frame = fig5.data(first_tokens, run.params.model)
    files.write_csv(frame, run.output.csv)
    style.save(fig5.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
