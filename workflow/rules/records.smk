"""
Needs: the network, or released_folder; workflow/sources.csv, which names every file at its commit.
Makes: <results>/sources/{source}, verified; <results>/answers/{model}/{split}.parquet from per-question records;
<results>/counts/{model}.csv from published metrics. Only fetch_records touches the outside world.
"""

from workflow.lib.records import declared, source_of
from workflow.lib.sources import load as load_sources

SOURCES = load_sources()
ROWS = config["dataset"]["rows"]


rule fetch_records:
    output:
        file="<results>/sources/{source}",
    log:
        "<results>/logs/fetch_records/{source}.log",
    benchmark:
        "<results>/benchmarks/fetch_records/{source}.tsv"
    wildcard_constraints:
        source="|".join(map(re.escape, SOURCES)),
    conda:
        "../../envs/cpu.yaml"
    params:
        source=lambda wildcards: SOURCES[wildcards.source].identity(),
        # asks for `input` so that Snakemake does not track it: the checks make a verified file the same
        # wherever it came from, and naming a folder later must not fetch again
        folder=lambda wildcards, input: config["released_folder"],
        code=code_digest("fetch_records"),
    script:
        "../scripts/fetch_records.py"


rule convert_records:
    input:
        records=lambda wildcards: f"<results>/sources/{source_of(config['models'][wildcards.model], wildcards.split)}",
    output:
        answers="<results>/answers/{model}/{split}.parquet",
    log:
        "<results>/logs/convert_records/{model}/{split}.log",
    benchmark:
        "<results>/benchmarks/convert_records/{model}/{split}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, MODELS_WITH_RECORDS)) or "(?!)",
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        dataset=config["dataset"]["name"],
        kind=lambda wildcards: config["models"][wildcards.model]["records"]["kind"],
        declared=lambda wildcards: declared(config["models"][wildcards.model], wildcards.split, ROWS),
        source=lambda wildcards: SOURCES[source_of(config["models"][wildcards.model], wildcards.split)].identity(),
        code=code_digest("convert_records"),
    script:
        "../scripts/convert_records.py"


rule convert_counts:
    input:
        metrics=lambda wildcards: f"<results>/sources/{source_of(config['models'][wildcards.model])}",
    output:
        counts="<results>/counts/{model}.csv",
    log:
        "<results>/logs/convert_counts/{model}.log",
    benchmark:
        "<results>/benchmarks/convert_counts/{model}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, MODELS_WITH_COUNTS)) or "(?!)",
    conda:
        "../../envs/cpu.yaml"
    params:
        declared=lambda wildcards: [declared(config["models"][wildcards.model], split, ROWS) for split in SPLITS],
        string_parse=lambda wildcards: config["models"][wildcards.model]["string_parse"],
        code=code_digest("convert_counts"),
    script:
        "../scripts/convert_counts.py"
