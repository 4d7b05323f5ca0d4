"""Draw Figure 1 of the first paper."""

from workflow.lib import files, job
from workflow.lib.figures import fig1, style

with job.opened(snakemake) as run:
    transitions = files.read_csv(run.input.transitions)
    first_tokens = files.read_csv(run.input.first_tokens)
    frame = fig1.data(transitions, first_tokens, run.params.model, run.params.split)
    files.write_csv(frame, run.output.csv)
    style.save(fig1.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
