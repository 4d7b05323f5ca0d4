"""
Needs: the released token audits (records.smk fetches them).
Makes: <results>/templates/{model}/{template}/answers.parquet, the answers to the first questions of one split under
two prompt templates; <results>/tokens/{model}.csv, the encodings of the surface forms as the audits state them.
"""

MODELS_WITH_FORMS = [
    model for model in MODELS_WITH_RECORDS if config["models"][model]["records"]["kind"] == "token_audit"
]


rule convert_template_records:
    input:
        records=lambda wildcards: f"<results>/sources/{template_source(wildcards)}",
    output:
        answers="<results>/templates/{model}/{template}/answers.parquet",
    log:
        "<results>/logs/convert_template_records/{model}/{template}.log",
    benchmark:
        "<results>/benchmarks/convert_template_records/{model}/{template}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, MODELS_WITH_FORMS)) or "(?!)",
        template="|".join(map(re.escape, TEMPLATE_RECORDS)),
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        dataset=config["dataset"]["name"],
        declared=template_declared,
        source=lambda wildcards: SOURCES[template_source(wildcards)].identity(),
        code=code_digest("convert_template_records"),
    script:
        "../scripts/convert_template_records.py"


rule convert_forms:
    input:
        records=lambda wildcards: [
            f"<results>/sources/{source_of(config['models'][wildcards.model], split)}" for split in SPLITS
        ],
    output:
        forms="<results>/tokens/{model}.csv",
    log:
        "<results>/logs/convert_forms/{model}.log",
    benchmark:
        "<results>/benchmarks/convert_forms/{model}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, MODELS_WITH_FORMS)) or "(?!)",
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        code=code_digest("convert_forms"),
    script:
        "../scripts/convert_forms.py"
