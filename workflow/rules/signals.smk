"""
Needs: items, images, the audited model's checkpoint, and CLIP checkpoints where they are configured.
Makes: <results>/signals/{model}/{split}.parquet, joined from <results>/signal_shards (attention and logits of an
instrumented pass), <results>/clip (similarities) and <results>/noise (second passes in the layout of the logits).
"""

from workflow.lib import signal_parts

SIGNALS = config["signals"]
# the models and splits whose signals the study takes
SIGNAL_RUNS = [{"model": model, "split": split} for model, splits in SIGNALS["runs"].items() for split in splits]
# the CLIP models that are configured, "b" and "l" in this order; an empty checkpoint leaves one out
CLIP_MODELS = {which: SIGNALS["clip"][which] for which in ("b", "l") if SIGNALS["clip"][which]["checkpoint"]}
CLIP_CHECKPOINTS = [manifest(entry["checkpoint"]) for entry in CLIP_MODELS.values()]
# those whose manifest states the centre of their certainty
CENTRED = {which: entry for which, entry in CLIP_MODELS.items() if entry["centre"] == signal_parts.MEDIAN}
CLIP_REVISIONS = {
    which: REPOSITORIES[entry["checkpoint"]]["revision"] if FETCHED else signal_parts.TRAINED
    for which, entry in CLIP_MODELS.items()
}
NOISE_KINDS = SIGNALS["noise"]["kinds"]
NOISE = {key: SIGNALS["noise"][key] for key in ("seed", "scale")}
# what the instrumented pass depends on
ATTENTION_KEYS = ["band", "image_span", "nouns", "spatial_words"]


wildcard_constraints:
    noise="random_image|gaussian_embedding",
    clip="|".join(map(re.escape, config["mini"]["clips"])),


rule infer_signals:
    input:
        unpack(inference_inputs("signals")),
    output:
        shard="<results>/signal_shards/{model}/{split}/{shard}.parquet",
    log:
        "<results>/logs/infer_signals/{model}/{split}/{shard}.log",
    benchmark:
        "<results>/benchmarks/infer_signals/{model}/{split}/{shard}.tsv"
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
        signals={key: SIGNALS[key] for key in ATTENTION_KEYS},
        libraries=model_libraries,
        environment=model_environment,
        code=lambda wildcards: code_digest("infer_signals", family_module(wildcards.model)),
    script:
        "../scripts/infer_signals.py"


rule infer_clip:
    input:
        unpack(inference_inputs("clip", clip=CLIP_CHECKPOINTS)),
    output:
        similarities="<results>/clip/{model}/{split}.parquet",
    log:
        "<results>/logs/infer_clip/{model}/{split}.log",
    benchmark:
        "<results>/benchmarks/infer_clip/{model}/{split}.tsv"
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
        which=list(CLIP_MODELS),
        pattern=SIGNALS["nouns"],
        libraries=model_libraries,
        environment=model_environment,
        code=lambda wildcards: code_digest("infer_clip", family_module(wildcards.model)),
    script:
        "../scripts/infer_clip.py"


rule infer_noise:
    input:
        unpack(inference_inputs("noise")),
    output:
        shard="<results>/noise/{noise}/{model}/{split}/{shard}.parquet",
    log:
        "<results>/logs/infer_noise/{noise}/{model}/{split}/{shard}.log",
    benchmark:
        "<results>/benchmarks/infer_noise/{noise}/{model}/{split}/{shard}.tsv"
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
        noise=NOISE,
        token_sets=config["readouts"]["token_sets"],
        libraries=model_libraries,
        environment=model_environment,
        code=lambda wildcards: code_digest("infer_noise", family_module(wildcards.model)),
    script:
        "../scripts/infer_noise.py"


rule merge_noise:
    input:
        shards=expand("<results>/noise/{{noise}}/{{model}}/{{split}}/{shard}.parquet", shard=SHARDS),
        questions="<results>/items/{split}.parquet",
    output:
        logits="<results>/noise/{noise}/{model}/{split}.parquet",
    log:
        "<results>/logs/merge_noise/{noise}/{model}/{split}.log",
    benchmark:
        "<results>/benchmarks/merge_noise/{noise}/{model}/{split}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        may_differ=config["run"]["may_differ"],
        absent=lambda wildcards: absent_shards("noise", wildcards),
        expected=lambda wildcards: expected_identity(wildcards.model),
        noise=NOISE,
        code=code_digest("merge_noise"),
    script:
        "../scripts/merge_noise.py"


# changing a centre, a slope or the kinds of noise runs this alone: similarities and passes stay
rule join_signals:
    input:
        questions="<results>/items/{split}.parquet",
        shards=expand("<results>/signal_shards/{{model}}/{{split}}/{shard}.parquet", shard=SHARDS),
        similarities=["<results>/clip/{model}/{split}.parquet"] if CLIP_MODELS else [],
        clip=[manifest(entry["checkpoint"]) for entry in CENTRED.values()],
        noise=expand("<results>/noise/{noise}/{{model}}/{{split}}.parquet", noise=NOISE_KINDS),
    output:
        signals="<results>/signals/{model}/{split}.parquet",
    log:
        "<results>/logs/join_signals/{model}/{split}.log",
    benchmark:
        "<results>/benchmarks/join_signals/{model}/{split}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        expected=lambda wildcards: expected_identity(wildcards.model),
        clip=CLIP_MODELS,
        centred=list(CENTRED),
        kinds=NOISE_KINDS,
        absent=lambda wildcards: absent_shards("signals", wildcards),
        code=code_digest("join_signals"),
    script:
        "../scripts/join_signals.py"
