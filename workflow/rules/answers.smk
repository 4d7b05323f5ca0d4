"""
Needs: merged logits and items.
Makes: <results>/answers/{model}/{split}.parquet, every readout in force on the same stored logits.
"""


rule read_answers:
    input:
        logits="<results>/logits/{model}/{split}.parquet",
        questions="<results>/items/{split}.parquet",
    output:
        answers="<results>/answers/{model}/{split}.parquet",
    log:
        "<results>/logs/read_answers/{model}/{split}.log",
    benchmark:
        "<results>/benchmarks/read_answers/{model}/{split}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        readouts=READOUTS,
        precision=config["readouts"]["precision"],
        code=code_digest("read_answers"),
    script:
        "../scripts/read_answers.py"
