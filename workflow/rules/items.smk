"""
Needs: one question file a split, in POPE's JSON-lines layout.
Makes: <results>/items/{split}.parquet, checked for rows, ids, labels and hash.
"""


rule build_items:
    input:
        polls=config["dataset"]["questions"],
    output:
        questions="<results>/items/{split}.parquet",
    log:
        "<results>/logs/build_items/{split}.log",
    benchmark:
        "<results>/benchmarks/build_items/{split}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        dataset=config["dataset"]["name"],
        revision=config["dataset"]["revision"],
        rows=config["dataset"]["rows"],
        per_image=config["dataset"]["per_image"],
        sha256=lambda wildcards: config["dataset"]["sha256"][wildcards.split],
        code=code_digest("build_items"),
    script:
        "../scripts/build_items.py"
