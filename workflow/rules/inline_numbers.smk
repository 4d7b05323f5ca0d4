"""
Needs: <results>/statistics, Table 8, the forms of the encoded model, and of the instrumented model and split the
signals and answers.
Makes: <results>/statistics/inline_numbers.csv, the numbers that stand in the first paper's running text only.
"""


rule compute_inline_numbers:
    input:
        confusion="<results>/statistics/confusion.csv",
        first_tokens="<results>/statistics/first_tokens.csv",
        transitions="<results>/statistics/transitions.csv",
        signal_tests="<results>/statistics/signal_tests.csv",
        instrumented="<results>/statistics/instrumented_pass.csv",
        table8="<results>/tables/table8.csv",
        forms=f"<results>/tokens/{ENCODED}.csv",
        answers=f"<results>/answers/{INSTRUMENTED['model']}/{INSTRUMENTED['split']}.parquet",
        signals=f"<results>/signals/{INSTRUMENTED['model']}/{INSTRUMENTED['split']}.parquet",
    output:
        numbers="<results>/statistics/inline_numbers.csv",
    log:
        "<results>/logs/compute_inline_numbers.log",
    benchmark:
        "<results>/benchmarks/compute_inline_numbers.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        model=AUDITED,
        # a study of records runs no model: seed and quantisation are then nobody's
        settings={"family": DISPLAY}
        | ({"seed": config["seed"], "quantisation": config["run"]["quantisation"]} if HAS_LOGITS else {}),
        code=code_digest("compute_inline_numbers"),
    script:
        "../scripts/compute_inline_numbers.py"
