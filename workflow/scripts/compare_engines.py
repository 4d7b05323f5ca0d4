"""Compare both engines on the sampled questions of every model."""

import pandas as pd

from workflow.lib import engine_agreement, files, items, job, logits

with job.opened(snakemake) as run:
    questions, _ = items.load(run.input.questions)
    frames = [
        engine_agreement.compare(
            [(logits.read(path), path) for path in paths], questions, run.params.readouts, run.params.precision
        )
        for paths in zip(run.input.study, run.input.other, strict=True)
    ]
    files.write_csv(pd.concat(frames, ignore_index=True), run.output.agreement)
