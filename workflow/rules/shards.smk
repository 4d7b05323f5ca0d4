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
        for model in MODELS
        if config["engines"]["split"] in SPLITS
    ),
    *(inference_slot("signals", **run, measured={key: SIGNALS[key] for key in ATTENTION_KEYS}) for run in RUNS),
    *(inference_slot("clip", **run, measured={"nouns": SIGNALS["nouns"], "revisions": CLIP_REVISIONS}) for run in RUNS),
]


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
        models={model: config["models"][model]["model_id"] for model in MODELS},
        splits=SPLITS,
        shards=config["run"]["shards"],
        rows=config["dataset"]["rows"],
        fetched=FETCHED,
        repositories={name: REPOSITORIES[name]["model_id"] for name in [*MODELS, *config["sources"]["clips"]]},
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
