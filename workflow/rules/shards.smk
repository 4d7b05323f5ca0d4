"""
Needs: the configuration; to import, a folder with shards that other machines made.
Makes: no file of its own. `snakemake plan` prints which shards are done and what the rest costs; `snakemake
import_shards --config shards=FOLDER` verifies foreign shards and puts them in place. Both run whenever they are named.
"""


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
        questions=expand("<results>/items/{split}.parquet", split=SPLITS),
    log:
        "<results>/logs/import_shards.log",
    conda:
        "../../envs/cpu.yaml"
    params:
        shards=config["shards"],
        places={
            "results": config["pathvars"]["results"],
            "images": config["dataset"]["images"].replace("<results>", config["pathvars"]["results"]),
        },
        splits=SPLITS,
        may_differ=config["run"]["may_differ"],
        expected={model: expected_identity(model) for model in MODELS},
        code=code_digest("import_shards"),
    script:
        "../scripts/import_shards.py"
