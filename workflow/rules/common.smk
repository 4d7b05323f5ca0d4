"""
Needs: config.yaml and, of an overlay, what it changes.
Makes: the checked configuration and the few names that the other rules share.
"""

import functools
import json
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError

from workflow.lib import files, provenance
from workflow.lib.errors import BadInput
from workflow.lib.settings import check_settings, read_numbers

ROOT = Path(workflow.basedir)
SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
read_numbers(config, SCHEMA)
try:
    check_settings(config, SCHEMA)
except BadInput as problem:
    raise WorkflowError(str(problem))

STUDY = config["study"]
MODELS = config["run"]["models"]
SPLITS = config["run"]["splits"]
SHARDS = range(config["run"]["shards"])
MODELS_WITH_COUNTS = [
    model for model in MODELS if config["models"][model].get("records", {}).get("kind") == "published_metrics"
]
MODELS_WITH_RECORDS = [model for model in MODELS if model not in MODELS_WITH_COUNTS]
# the model that the single-model exhibits of the first paper are about
AUDITED = "llava15"
# the model whose tokenizer Table 10, Figure 10 and the comparison of templates are about
ENCODED = "llava16_mistral"
READOUTS = config["readouts"]["names"]
DISPLAY = {model: config["models"][model]["display"] for model in MODELS}
# whether questions, images and checkpoints are fetched, and what of the hub: name -> repository and revision
FETCHED = config["sources"]["checkpoints"] == "hub"
REPOSITORIES = {
    name: {key: entry[key] for key in ("model_id", "revision")} | {"remote_code": entry.get("remote_code", False)}
    for name, entry in {**config["models"], **config["sources"]["clips"]}.items()
}
# modelling code that a checkpoint needs and its repository does not hold: name -> repository and revision
OWN_CODE = {name: dict(entry["code"]) for name, entry in config["models"].items() if "code" in entry}
# the part of `run` that may move a logit; the rest would rerun inference for nothing
INFERENCE_KEYS = ["shards", "engine", "batch_size", "device", "dtype", "quantisation", "attention", "threads"]
# libraries that may move a logit; their pins are a parameter, so that a new version of one of them reruns inference
MODEL_LIBRARIES = ["torch", "transformers", "tokenizers", "safetensors", "pillow", "numpy"]
# the released runs behind Table 11: first 500 adversarial questions, template by the name that the mini study uses
TEMPLATE_RECORDS = {
    "as_run": {"prompt_mode": "paper_template"},
    "native": {"prompt_mode": "native_chat_template"},
}
TEMPLATE_ROWS = {"split": "adversarial", "rows": 500}
NOTE = " ".join(config["note"].split())
# what was planted in models that this workflow trained; stands in the sidecar of every exhibit
PLANTED = {model: config["mini"]["models"][model]["planted"] for model in MODELS} if STUDY == "mini" else {}


wildcard_constraints:
    model="|".join(map(re.escape, MODELS)),
    split="|".join(map(re.escape, SPLITS)),
    shard="|".join(map(str, SHARDS)),
    template="as_run|paper|native",


@functools.cache
def code_digest(script, *modules):
    """Digest of a script and of all modules of this project that it reaches."""
    return provenance.code_digest(ROOT, script, *modules)


def in_results(path):
    """A path in which <results> is spelt out, for what is no input or output."""
    return path.replace("<results>", config["pathvars"]["results"])


def local_place(wildcards, input):
    """The local folder that is looked into before the network, and whether the network is forbidden.

    Where a copy came from moves no logit: a parameter that asks for `input` is not tracked by Snakemake.
    """
    return [config["local_folder"], config["offline"]]


def write_run_config():
    """Keep the merged configuration of this run where its results go."""
    merged = yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False, allow_unicode=True, width=110)
    files.write_text(merged, f"{config['pathvars']['results']}/run_config.yaml")


def training_settings(model):
    """The parts of the configuration that one mini checkpoint depends on."""
    templates = config["models"][model]["templates"]
    return {
        "seed": config["seed"],
        "world": config["scenes"]["world"],
        "shape": config["mini"]["shape"],
        "models": {model: config["mini"]["models"][model]},
        "templates": {name: dict(config["prompts"][text]) for name, text in templates.items()},
    }


def figure_labels(number, kind):
    """Labels of a figure in the report."""
    return {"exhibit": f"Figure {number}", "file": kind}


def published(path):
    """Where a table of the papers stands, and its contents' digest, so that an edit makes its users again."""
    return {"path": path.relative_to(ROOT.resolve()).as_posix(), "sha256": files.sha256(path)}


def template_source(wildcards):
    """Name of the record file of one model under one template."""
    model_id = "_".join(Path(config["models"][wildcards.model]["model_id"]).parts)
    run = f"{TEMPLATE_ROWS['split']}_{TEMPLATE_ROWS['rows']}q"
    mode = TEMPLATE_RECORDS[wildcards.template]["prompt_mode"]
    return f"released/{model_id}_pope_{run}_{mode}_token_audit.json"


def template_declared(wildcards):
    """What that file must say about itself."""
    mode = TEMPLATE_RECORDS[wildcards.template]["prompt_mode"]
    return TEMPLATE_ROWS | {"model_id": config["models"][wildcards.model]["model_id"], "prompt_mode": mode}
