"""Set the surveyed gains and baselines beside the readout gap of this study."""

from workflow.lib import files, job, survey

with job.opened(snakemake) as run:
    gap = survey.readout_gap(files.read_csv(run.input.protocol_gap), run.params.model)
    files.write_csv(survey.statistics(survey.load(), gap, run.params.study), run.output.survey)
