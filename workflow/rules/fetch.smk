"""
Needs: the network, or local copies; workflow/sources.csv, which names every file and repository at its revision.
Makes: <results>/questions, <results>/images (only the images that the items name) and <results>/checkpoints/{repository},
each verified. These rules are the only ones of the full study that touch the outside world, and run where snakemake
itself runs, because compute nodes often have no network.

A checkpoint's folder may be deleted. Shards depend on {repository}.json beside it, which stays, so nothing is run again
for that; a run that needs the folder after all brings it back before its first job.
"""

from workflow.lib.sources import code_files, image_origin, known_files, load as load_sources, place_of

SOURCES = load_sources()


localrules:
    fetch_questions,
    fetch_images,
    fetch_checkpoint,


rule fetch_questions:
    output:
        file="<results>/questions/coco_pope_{split}.json",
    log:
        "<results>/logs/fetch_questions/{split}.log",
    benchmark:
        "<results>/benchmarks/fetch_questions/{split}.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        source=lambda wildcards: place_of(
            SOURCES, f"pope/{config['dataset']['revision']}/coco_pope_{wildcards.split}.json"
        ).identity(),
        place=local_place,
        code=code_digest("fetch_questions"),
    script:
        "../scripts/fetch_questions.py"


rule fetch_images:
    input:
        questions=expand("<results>/items/{split}.parquet", split=SPLITS),
    output:
        table="<results>/images/images.csv",
    log:
        "<results>/logs/fetch_images/all.log",
    benchmark:
        "<results>/benchmarks/fetch_images/all.tsv"
    conda:
        "../../envs/cpu.yaml"
    params:
        way=config["sources"]["images"],
        origin=image_origin(SOURCES, config["sources"]["images"]),
        place=local_place,
        code=code_digest("fetch_images"),
    script:
        "../scripts/fetch_images.py"


rule fetch_checkpoint:
    output:
        # a failed or killed fetch must not take it away: shards would count as made from something else
        manifest=update("<results>/checkpoints/{repository}.json"),
        seal="<results>/checkpoints/{repository}/checkpoint.json",
    log:
        "<results>/logs/fetch_checkpoint/{repository}.log",
    benchmark:
        "<results>/benchmarks/fetch_checkpoint/{repository}.tsv"
    wildcard_constraints:
        repository="|".join(map(re.escape, REPOSITORIES)),
    conda:
        "../../envs/cpu.yaml"
    params:
        repository=lambda wildcards: REPOSITORIES[wildcards.repository],
        code_files=lambda wildcards: code_files(SOURCES, OWN_CODE.get(wildcards.repository)),
        known=lambda wildcards: known_files(SOURCES, REPOSITORIES[wildcards.repository]),
        place=local_place,
        code=code_digest("fetch_checkpoint"),
    script:
        "../scripts/fetch_checkpoint.py"
