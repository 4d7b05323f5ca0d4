"""
Needs: items, images and a checkpoint.
Makes: <results>/logits/{model}/{split}/{shard}.parquet, each a target of its own and the only rule here that
touches a model; and <results>/logits/{model}/{split}.parquet, the verified whole.
"""


rule infer_shard:
    input:
        unpack(inference_inputs("logits")),
    output:
        shard="<results>/logits/{model}/{split}/{shard}.parquet",
    log:
        "<results>/logs/infer_shard/{model}/{split}/{shard}.log",
    benchmark:
        "<results>/benchmarks/infer_shard/{model}/{split}/{shard}.tsv"
    conda:
        model_environment_file
    threads: config["run"]["threads"]
    resources:
        gpu=int(config["run"]["device"] == "cuda"),
    params:
        study=STUDY,
        seed=config["seed"],
        settings=lambda wildcards: model_settings(wildcards.model),
        run={key: config["run"][key] for key in INFERENCE_KEYS},
        token_sets=config["readouts"]["token_sets"],
        libraries=model_libraries,
        environment=model_environment,
        code=lambda wildcards: code_digest("infer_shard", family_module(wildcards.model)),
    script:
        "../scripts/infer_shard.py"


rule merge_shards:
    input:
        shards=expand("<results>/logits/{{model}}/{{split}}/{shard}.parquet", shard=SHARDS),
        questions="<results>/items/{split}.parquet",
    output:
        logits="<results>/logits/{model}/{split}.parquet",
    log:
        "<results>/logs/merge_shards/{model}/{split}.log",
    benchmark:
        "<results>/benchmarks/merge_shards/{model}/{split}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        may_differ=config["run"]["may_differ"],
        # Snakemake does not miss an intermediate file once its users are built; a deleted shard must be run again,
        # so what is absent stands among the parameters: nothing when the merge ran
        absent=lambda wildcards: absent_shards("logits", wildcards),
        expected=lambda wildcards: expected_identity(wildcards.model),
        code=code_digest("merge_shards"),
    script:
        "../scripts/merge_shards.py"
