"""
Needs: the released records of the instrumented pass and the released summaries of correction runs.
Makes: <results>/signals/{model}/{split}.parquet in the layout that inference writes;
<results>/statistics/released_corrections.csv.
"""

INSTRUMENTED_RUN = config["statistics"]["released"]
INSTRUMENTED_MODEL, INSTRUMENTED_SPLIT = INSTRUMENTED_RUN["model"], INSTRUMENTED_RUN["split"]
INSTRUMENTED_DECLARED = {
    "split": INSTRUMENTED_SPLIT,
    "rows": config["dataset"]["rows"],
    "model_id": config["models"][INSTRUMENTED_MODEL]["model_id"],
}


rule convert_diagnostic:
    input:
        records=f"<results>/sources/{INSTRUMENTED_RUN['diagnostic']}",
    output:
        signals=f"<results>/signals/{INSTRUMENTED_MODEL}/{INSTRUMENTED_SPLIT}.parquet",
    log:
        "<results>/logs/convert_diagnostic.log",
    benchmark:
        "<results>/benchmarks/convert_diagnostic.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        model=INSTRUMENTED_MODEL,
        dataset=config["dataset"]["name"],
        declared=INSTRUMENTED_DECLARED,
        source=SOURCES[INSTRUMENTED_RUN["diagnostic"]].identity(),
        code=code_digest("convert_diagnostic"),
    script:
        "../scripts/convert_diagnostic.py"


rule convert_corrections:
    input:
        summaries=[f"<results>/sources/{run['source']}" for run in INSTRUMENTED_RUN["corrections"]],
    output:
        counts="<results>/statistics/released_corrections.csv",
    log:
        "<results>/logs/convert_corrections.log",
    benchmark:
        "<results>/benchmarks/convert_corrections.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        model=INSTRUMENTED_MODEL,
        declared=INSTRUMENTED_DECLARED,
        runs=[{name: run[name] for name in ("method", "beta", "mode")} for run in INSTRUMENTED_RUN["corrections"]],
        code=code_digest("convert_corrections"),
    script:
        "../scripts/convert_corrections.py"
