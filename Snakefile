"""Readout Audit: how the answer of a vision-language model is read, and what the reading does to a benchmark.

The includes stand in running order and read as the method section: questions, models, stored logits, answers,
statistics, exhibits, ledger. `snakemake --cores 1 results/tables/table4.csv` builds the default study.
"""

from snakemake.utils import min_version

min_version("9.27.1")


configfile: workflow.source_path("config.yaml")


include: "workflow/rules/common.smk"
include: "workflow/rules/inference.smk"
include: "workflow/rules/session.smk"


# where the way of the data begins depends on the study
if config["begins_at"] == "model":

    if FETCHED:

        include: "workflow/rules/fetch.smk"

    else:

        include: "workflow/rules/scenes.smk"
        include: "workflow/rules/checkpoints.smk"
    include: "workflow/rules/items.smk"
    include: "workflow/rules/logits.smk"
    include: "workflow/rules/answers.smk"
    include: "workflow/rules/signals.smk"
    include: "workflow/rules/templates.smk"
    include: "workflow/rules/engines.smk"

else:

    include: "workflow/rules/records.smk"
    include: "workflow/rules/templates_released.smk"
    include: "workflow/rules/signals_released.smk"
    include: "workflow/rules/items.smk"


include: "workflow/rules/statistics.smk"
include: "workflow/rules/comparisons.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/tables_signals.smk"
include: "workflow/rules/tables_more.smk"
include: "workflow/rules/equations.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/inline_numbers.smk"
include: "workflow/rules/claims.smk"


if config["begins_at"] == "model":

    include: "workflow/rules/shards.smk"


rule all:
    default_target: True
    input:
        expand("<results>/tables/{table}.csv", table=TABLES + SIGNAL_TABLES + MORE_TABLES),
        expand("<results>/figures/{figure}.pdf", figure=FIGURES),
        expand(
            "<results>/statistics/{name}.csv",
            name=["survey", "equations", "agreement", "intervals", "mcnemar", "margins"],
        ),
        "<results>/statistics/engine_agreement.csv" if STUDY == "mini" else [],
        "<results>/claims.csv",
