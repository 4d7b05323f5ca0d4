"""Draw Figure 10 of the first paper."""

from workflow.lib import files, forms, job
from workflow.lib.figures import fig10, style

with job.opened(snakemake) as run:
    first_tokens = files.read_csv(run.input.first_tokens)
    frame = fig10.data(forms.load(run.input.forms), first_tokens, tuple(run.params.models))
    files.write_csv(frame, run.output.csv)
    style.save(fig10.draw(frame), run.output.pdf, run.output.png)
    files.write_json(run.stamp(), run.output.sidecar)
