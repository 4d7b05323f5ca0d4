"""Ask of every pairing of model and template whether the token sets cover what the model emits."""

import pandas as pd

from workflow.lib import diagnosis, files, job, statistics

with job.opened(snakemake) as run:
    sets = [(statistics.load_answers(path), run.params.template) for path in run.input.answers]
    sets += [(statistics.load_answers(path), "native") for path in run.input.templates]
    found = [diagnosis.diagnose(held, name, run.params.questions, run.params.readouts) for held, name in sets]
    files.write_csv(pd.concat(found, ignore_index=True), run.output.table)
    files.write_json(run.stamp(), run.output.sidecar)
