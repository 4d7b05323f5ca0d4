"""Compare signals between outcome groups, and the instrumented pass with the main run."""

from workflow.lib import files, job, signal_statistics, signals, statistics

with job.opened(snakemake) as run:
    measured = [signals.load(path) for path in run.input.signals]
    sets = [statistics.load_answers(path) for path in run.input.answers]
    tests = signal_statistics.signal_tests(
        measured, run.params.comparisons, run.params.level, run.params.resamples, run.params.seed
    )
    files.write_csv(tests, run.output.tests)
    files.write_csv(signal_statistics.instrumented_pass(measured, sets), run.output.instrumented)
