"""
Needs: answers of every model and split; items; of models known by published metrics only, their counts.
Makes: <results>/statistics/*.csv, all counting of this workflow; <results>/tables/split_consistency.csv.
"""


rule compare_answers:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
        counts=expand("<results>/counts/{model}.csv", model=MODELS_WITH_COUNTS),
    output:
        confusion="<results>/statistics/confusion.csv",
    log:
        "<results>/logs/compare_answers.log",
    benchmark:
        "<results>/benchmarks/compare_answers.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        models=MODELS,
        splits=SPLITS,
        readouts=READOUTS,
        code=code_digest("compare_answers"),
    script:
        "../scripts/compare_answers.py"


rule count_first_tokens:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
    output:
        first_tokens="<results>/statistics/first_tokens.csv",
    log:
        "<results>/logs/count_first_tokens.log",
    benchmark:
        "<results>/benchmarks/count_first_tokens.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        models=MODELS,
        splits=SPLITS,
        readouts=READOUTS,
        code=code_digest("count_first_tokens"),
    script:
        "../scripts/count_first_tokens.py"


rule compare_readouts:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
    output:
        transitions="<results>/statistics/transitions.csv",
        protocol_gap="<results>/statistics/protocol_gap.csv",
    log:
        "<results>/logs/compare_readouts.log",
    benchmark:
        "<results>/benchmarks/compare_readouts.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        models=MODELS,
        splits=SPLITS,
        readouts=READOUTS,
        code=code_digest("compare_readouts"),
    script:
        "../scripts/compare_readouts.py"


rule compare_splits:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
        questions=expand("<results>/items/{split}.parquet", split=SPLITS),
    output:
        differences="<results>/statistics/split_differences.csv",
        table="<results>/tables/split_consistency.csv",
        sidecar="<results>/tables/split_consistency.json",
    log:
        "<results>/logs/compare_splits.log",
    benchmark:
        "<results>/benchmarks/compare_splits.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        models=MODELS,
        splits=SPLITS,
        readouts=READOUTS,
        note=NOTE,
        planted=PLANTED,
        code=code_digest("compare_splits"),
    script:
        "../scripts/compare_splits.py"


rule diagnose_readouts:
    input:
        answers=expand(
            "<results>/answers/{model}/{split}.parquet",
            model=MODELS_WITH_RECORDS,
            split=config["diagnostic"]["split"],
        ),
        # a second prompt template is another pairing, so it is diagnosed too
        templates=expand(
            "<results>/templates/{model}/{template}/answers.parquet",
            model=[model for model in MODELS_WITH_RECORDS if model == ENCODED],
            template="native",
        ),
    output:
        table="<results>/tables/diagnostic.csv",
        sidecar="<results>/tables/diagnostic.json",
    log:
        "<results>/logs/diagnose_readouts.log",
    benchmark:
        "<results>/benchmarks/diagnose_readouts.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        note=NOTE,
        planted=PLANTED,
        readouts=READOUTS,
        questions=config["diagnostic"]["questions"],
        template=config["run"]["template"],
        code=code_digest("diagnose_readouts"),
    script:
        "../scripts/diagnose_readouts.py"


rule check_agreement:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
    output:
        agreement="<results>/statistics/agreement.csv",
    log:
        "<results>/logs/check_agreement.log",
    benchmark:
        "<results>/benchmarks/check_agreement.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        readouts=READOUTS,
        code=code_digest("check_agreement"),
    script:
        "../scripts/check_agreement.py"
