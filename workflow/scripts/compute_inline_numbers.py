"""Compute the numbers that stand in the running text only."""

from workflow.lib import answers, files, forms, inline_numbers, job, signals

STATISTICS = ("confusion", "first_tokens", "transitions", "signal_tests", "instrumented", "table8")

with job.opened(snakemake) as run:
    found = inline_numbers.table(
        run.params.study,
        run.params.model,
        **{name: files.read_csv(getattr(run.input, name)) for name in STATISTICS},
        encoded=forms.load(run.input.forms),
        answers=answers.load(run.input.answers)[0],
        signals=signals.load(run.input.signals),
        settings=inline_numbers.Settings(**run.params.settings),
    )
    files.write_csv(found, run.output.numbers)
