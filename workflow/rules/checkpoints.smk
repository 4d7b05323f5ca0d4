"""
Needs: the section mini of the configuration.
Makes: <results>/checkpoints/{model}: a checkpoint folder like those of the real models, trained here in seconds.
"""


rule train_base:
    output:
        base="<results>/checkpoints/base.safetensors",
    log:
        "<results>/logs/train_base/all.log",
    benchmark:
        "<results>/benchmarks/train_base/all.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        settings={
            "seed": config["seed"],
            "world": config["scenes"]["world"],
            "shape": config["mini"]["shape"],
            "base": config["mini"]["base"],
        },
        code=code_digest("train_base", "workflow.models.mini.base"),
    script:
        "../scripts/train_base.py"


rule train_checkpoint:
    input:
        base="<results>/checkpoints/base.safetensors",
    output:
        checkpoint="<results>/checkpoints/{model}/checkpoint.json",
        config="<results>/checkpoints/{model}/config.json",
        weights="<results>/checkpoints/{model}/model.safetensors",
    log:
        "<results>/logs/train_checkpoint/{model}.log",
    benchmark:
        "<results>/benchmarks/train_checkpoint/{model}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        settings=lambda wildcards: training_settings(wildcards.model),
        code=code_digest(
            "train_checkpoint",
            "workflow.models.mini.checkpoint",
            "workflow.models.mini.mplug_owl2_code",
            "workflow.models.mini.mplug_owl2_code.configuration_mplug_owl2",
            "workflow.models.mini.mplug_owl2_code.modeling_mplug_owl2",
        ),
    script:
        "../scripts/train_checkpoint.py"


rule train_clip:
    input:
        base="<results>/checkpoints/base.safetensors",
    output:
        checkpoint="<results>/checkpoints/{clip}/checkpoint.json",
        config="<results>/checkpoints/{clip}/config.json",
        weights="<results>/checkpoints/{clip}/model.safetensors",
    log:
        "<results>/logs/train_clip/{clip}.log",
    benchmark:
        "<results>/benchmarks/train_clip/{clip}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        settings=lambda wildcards: {
            "seed": config["seed"],
            "world": config["scenes"]["world"],
            "shape": config["mini"]["shape"],
            "clip": config["mini"]["clips"][wildcards.clip],
        },
        code=code_digest("train_clip"),
    script:
        "../scripts/train_clip.py"
