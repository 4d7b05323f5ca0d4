"""
Needs: items, images, checkpoints and the first shard of one split.
Makes: <results>/engines: the first questions of that shard, answered with the engine that the study does not use;
<results>/statistics/engine_agreement.csv, how far both engines agree on them. It is part of the mini study; in the full
study the sample costs GPU time that no table needs, so it is asked for: `snakemake engine_agreement`.
"""

OTHER_ENGINE = {"reference": "shared_prefix", "shared_prefix": "reference"}[config["run"]["engine"]]
# environments with older versions of transformers have the reference only
COMPARED = [model for model in MODELS if not environments.is_older(environment_of(model)["transformers"])]


rule sample_images:
    input:
        questions=f"<results>/items/{config['engines']['split']}.parquet",
    output:
        questions="<results>/engines/questions.parquet",
    log:
        "<results>/logs/sample_images.log",
    benchmark:
        "<results>/benchmarks/sample_images.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        images=config["engines"]["images"],
        shards=config["run"]["shards"],
        code=code_digest("sample_images"),
    script:
        "../scripts/sample_images.py"


rule infer_engine:
    input:
        unpack(inference_inputs("engine")),
    output:
        shard="<results>/engines/{model}.parquet",
    log:
        "<results>/logs/infer_engine/{model}.log",
    benchmark:
        "<results>/benchmarks/infer_engine/{model}.tsv"
    conda:
        model_environment_file
    threads: config["run"]["threads"]
    resources:
        gpu=int(config["run"]["device"] == "cuda"),
    params:
        study=STUDY,
        seed=config["seed"],
        settings=lambda wildcards: model_settings(wildcards.model),
        run={key: config["run"][key] for key in INFERENCE_KEYS} | {"shards": 1, "engine": OTHER_ENGINE},
        token_sets=config["readouts"]["token_sets"],
        libraries=model_libraries,
        environment=model_environment,
        code=lambda wildcards: code_digest("infer_engine", family_module(wildcards.model)),
    script:
        "../scripts/infer_engine.py"


rule compare_engines:
    input:
        study=expand(f"<results>/logits/{{model}}/{config['engines']['split']}/0.parquet", model=COMPARED),
        other=expand("<results>/engines/{model}.parquet", model=COMPARED),
        questions="<results>/engines/questions.parquet",
    output:
        agreement="<results>/statistics/engine_agreement.csv",
    log:
        "<results>/logs/compare_engines.log",
    benchmark:
        "<results>/benchmarks/compare_engines.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        study=STUDY,
        readouts=READOUTS,
        precision=config["readouts"]["precision"],
        code=code_digest("compare_engines"),
    script:
        "../scripts/compare_engines.py"


rule engine_agreement:
    input:
        "<results>/statistics/engine_agreement.csv",
