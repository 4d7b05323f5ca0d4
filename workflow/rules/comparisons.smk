"""
Needs: answers and items of every model and split; signals of the instrumented pass; merged logits where the
study has them.
Makes: <results>/statistics: signal_tests, instrumented_pass, corrections and beta_sweep from signals; intervals,
mcnemar, margins and margin_histogram of the readouts.
"""

# the paper instrumented one pass: its audited model on its hardest split
INSTRUMENTED = {"model": "llava15", "split": "adversarial"}
HAS_LOGITS = config["begins_at"] == "model"
BOOTSTRAP = {name: config["statistics"][name] for name in ("level", "resamples", "seed")}


rule compare_signals:
    input:
        signals=expand("<results>/signals/{model}/{split}.parquet", **INSTRUMENTED),
        answers=expand("<results>/answers/{model}/{split}.parquet", **INSTRUMENTED),
    output:
        tests="<results>/statistics/signal_tests.csv",
        instrumented="<results>/statistics/instrumented_pass.csv",
    log:
        "<results>/logs/compare_signals.log",
    benchmark:
        "<results>/benchmarks/compare_signals.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **BOOTSTRAP,
        study=STUDY,
        comparisons=config["statistics"]["comparisons"],
        code=code_digest("compare_signals"),
    script:
        "../scripts/compare_signals.py"


rule compare_corrections:
    input:
        signals=expand("<results>/signals/{model}/{split}.parquet", **INSTRUMENTED),
        released=[] if HAS_LOGITS else ["<results>/statistics/released_corrections.csv"],
    output:
        corrections="<results>/statistics/corrections.csv",
        sweep="<results>/statistics/beta_sweep.csv",
    log:
        "<results>/logs/compare_corrections.log",
    benchmark:
        "<results>/benchmarks/compare_corrections.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        betas=config["statistics"]["betas"],
        code=code_digest("compare_corrections"),
    script:
        "../scripts/compare_corrections.py"


rule bound_readouts:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
        counts=expand("<results>/counts/{model}.csv", model=MODELS_WITH_COUNTS),
        questions=expand("<results>/items/{split}.parquet", split=SPLITS),
    output:
        intervals="<results>/statistics/intervals.csv",
    log:
        "<results>/logs/bound_readouts.log",
    benchmark:
        "<results>/benchmarks/bound_readouts.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        **BOOTSTRAP,
        study=STUDY,
        readouts=READOUTS,
        pairs=config["statistics"]["pairs"],
        units=config["statistics"]["units"],
        code=code_digest("bound_readouts"),
    script:
        "../scripts/bound_readouts.py"


rule pair_readouts:
    input:
        answers=expand("<results>/answers/{model}/{split}.parquet", model=MODELS_WITH_RECORDS, split=SPLITS),
    output:
        mcnemar="<results>/statistics/mcnemar.csv",
    log:
        "<results>/logs/pair_readouts.log",
    benchmark:
        "<results>/benchmarks/pair_readouts.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        pairs=config["statistics"]["pairs"],
        method=config["statistics"]["mcnemar"],
        code=code_digest("pair_readouts"),
    script:
        "../scripts/pair_readouts.py"


# without logits only the set maxima of the instrumented pass tell margins
rule count_ties:
    input:
        logits=expand("<results>/logits/{model}/{split}.parquet", model=MODELS, split=SPLITS) if HAS_LOGITS else [],
        signals=[] if HAS_LOGITS else expand("<results>/signals/{model}/{split}.parquet", **INSTRUMENTED),
    output:
        margins="<results>/statistics/margins.csv",
        histogram="<results>/statistics/margin_histogram.csv",
    log:
        "<results>/logs/count_ties.log",
    benchmark:
        "<results>/benchmarks/count_ties.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        readouts=READOUTS,
        precision=config["readouts"]["precision"],
        width=config["statistics"]["margin_bin"],
        code=code_digest("count_ties"),
    script:
        "../scripts/count_ties.py"
