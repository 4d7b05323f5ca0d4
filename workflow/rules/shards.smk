"""
Needs: the configuration; to import, a folder with shards that other machines made.
Makes: no file of its own. `snakemake plan` prints which shards are done and what the rest costs; `snakemake
import_shards --config shards=FOLDER` verifies foreign shards and puts them in place. Both run whenever they are named.
"""

from workflow.lib import signal_parts

# every file that inference can make, and what it must say of itself to be taken from another machine
RUNS = [{"model": model, "split": split} for model in MODELS for split in SPLITS]
SLOTS = [
    *(inference_slot("logits", **run) for run in RUNS),
    *(
        inference_slot("noise", **run, noise=noise, engine=signal_parts.noise_engine(noise, NOISE))
        for noise in signal_parts.NOISES
        for run in RUNS
    ),
    *(
        inference_slot("template", model, config["templates"]["split"], template=template, shards=1)
        for model in MODELS
        for template in config["models"][model]["templates"]
        if config["templates"]["split"] in SPLITS
    ),
    *(
        inference_slot("engine", model, config["engines"]["split"], engine=OTHER_ENGINE, shards=1)
        for model in COMPARED
        if config["engines"]["split"] in SPLITS
    ),
    *(inference_slot("signals", **run, measured={key: SIGNALS[key] for key in ATTENTION_KEYS}) for run in RUNS),
    *(inference_slot("clip", **run, measured={"nouns": SIGNALS["nouns"], "revisions": CLIP_REVISIONS}) for run in RUNS),
]


# what of them the targets of `all` need, in the plan's terms
WORKS = [
    *(inference_work("infer_shard", "logits", run["split"], **run) for run in RUNS),
    *(
        inference_work("infer_noise", "noise", f"{noise} {run['split']}", "infer_shard", **run, noise=noise)
        for noise in NOISE_KINDS
        for run in SIGNAL_RUNS
    ),
    *(inference_work("infer_signals", "signals", run["split"], **run) for run in SIGNAL_RUNS),
    *(inference_work("infer_clip", "clip", run["split"], **run) for run in SIGNAL_RUNS if CLIP_MODELS),
    *(
        inference_work("infer_template", "template", template, "infer_shard", ENCODED, "", template=template)
        for template in COMPARED_TEMPLATES
        if ENCODED in MODELS
    ),
]
# what is fetched: name in workflow/published/sizes.csv -> what to call it, and a file that is there afterwards
IMAGES_WAY = config["sources"]["images"]
DOWNLOADS = {
    "questions": ("questions", in_results(f"<results>/questions/coco_pope_{SPLITS[-1]}.json")),
    f"images/{IMAGES_WAY}": (f"images ({IMAGES_WAY})", in_results(config["dataset"]["images"])),
    **{
        entry["model_id"]: (entry["model_id"], in_results(f"<results>/checkpoints/{name}/checkpoint.json"))
        for name, entry in REPOSITORIES.items()
        if name in MODELS or name in config["sources"]["clips"]
    },
}


localrules:
    plan,
    import_shards,


rule plan:
    log:
        "<results>/logs/plan.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        results=config["pathvars"]["results"],
        works=WORKS,
        models={model: config["models"][model]["model_id"] for model in MODELS},
        fetched=DOWNLOADS if FETCHED else {},
        published=str(ROOT / "workflow/published"),
        code=code_digest("plan"),
    script:
        "../scripts/plan.py"


rule import_shards:
    input:
        questions=sorted({slot["questions"] for slot in SLOTS}),
    log:
        "<results>/logs/import_shards.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        shards=config["shards"],
        images=in_results(config["dataset"]["images"]),
        slots=SLOTS,
        may_differ=config["run"]["may_differ"],
        code=code_digest("import_shards"),
    script:
        "../scripts/import_shards.py"
