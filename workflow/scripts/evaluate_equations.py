"""Evaluate Equations (1) to (5) on every split."""

from workflow.lib import equations, files, job

with job.opened(snakemake) as run:
    transitions = files.read_csv(run.input.transitions)
    files.write_csv(equations.evaluate(transitions), run.output.equations)
