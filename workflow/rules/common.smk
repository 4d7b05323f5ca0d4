"""
Needs: config.yaml and, of an overlay, what it changes.
Makes: the checked configuration and the few names that the other rules share.
"""

import functools
import json
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError

from workflow.lib import environments, files, provenance
from workflow.lib.errors import BadInput
from workflow.lib.shard_import import is_imported
from workflow.lib.shard_kinds import KINDS
from workflow.lib.settings import check_settings, read_numbers
from workflow.models import warm

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
# the idle process of this run, see workflow/models/warm.py
WARM = []
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


def model_settings(model, template=config["run"]["template"]):
    """What inference takes from a model's catalogue entry: only one prompt template is in it."""
    entry = config["models"][model]
    kept = {key: entry[key] for key in ("family", "model_id", "revision", "remote_code", "code") if key in entry}
    return kept | {"template": {"name": template} | config["prompts"][entry["templates"][template]]}


@functools.cache
def locked(environment, *names):
    """Pins of some packages in the lock of an environment."""
    return provenance.pins(ROOT / f"envs/{environment}.lock", names)


def environment_of(model):
    """Name of a model's environment, and the transformers version that its lock pins."""
    name = config["models"][model]["environment"]
    return {"name": name, "transformers": locked(name, "transformers")[0].split("==")[1]}


def model_libraries(wildcards):
    """Pins of the libraries that a model is run with."""
    return locked(config["models"][wildcards.model]["environment"], *MODEL_LIBRARIES)


def model_environment_file(wildcards):
    """The environment that a model is run in, for `conda:`."""
    return f"../../envs/{config['models'][wildcards.model]['environment']}.yaml"


def model_environment(wildcards, input):
    """That environment, by which a job knows that it runs in another one.

    What of it moves a logit stands in `libraries`: a parameter that asks for `input` is not tracked by Snakemake, so a
    model moved to an environment with the same libraries is not run again.
    """
    return environment_of(wildcards.model)


def expected_identity(model, template=config["run"]["template"]):
    """The identity fields that this configuration fixes; shards of anything else are never merged."""
    settings = model_settings(model, template)
    return {key: config["run"][key] for key in INFERENCE_KEYS} | {
        "study": STUDY,
        "seed": config["seed"],
        "model": model,
        "model_id": settings["model_id"],
        "revision": settings["revision"],
        "template": settings["template"]["name"],
        "dataset": config["dataset"]["name"],
        "dataset_revision": config["dataset"]["revision"],
    }


def in_results(path):
    """A path in which <results> is spelt out, for what is no input or output."""
    return path.replace("<results>", config["pathvars"]["results"])


def manifest(name):
    """What describes a checkpoint: in its folder, or beside it where that was fetched and may be deleted again."""
    return f"<results>/checkpoints/{name}.json" if FETCHED else f"<results>/checkpoints/{name}/checkpoint.json"


def inference_inputs(kind, **more):
    """What a file of inference is made from: nothing here where another machine made it (workflow/lib/shard_import.py).

    `kind` is one of workflow/lib/shard_kinds.py; `more` are inputs besides questions, images and checkpoint.
    """

    def wanted(wildcards):
        if is_imported(Path(in_results(f"<results>/{KINDS[kind].place}".format(**wildcards)))):
            return {}
        common = {
            "questions": KINDS[kind].questions.format(**wildcards),
            "images": config["dataset"]["images"],
            "checkpoint": manifest(wildcards.model),
        }
        return common | more

    return wanted


def restore_checkpoints():
    """Fetch again what was deleted of a checkpoint and is needed by a job of this run; nothing else counts as changed.

    As a job it could not be: Snakemake 9.27.1 runs every job again that depends on one that runs, unless all files in
    between are `ancient` and there, and a shard's recorded set of inputs must not change with time.
    """
    jobs = list(workflow.dag.needrun_jobs())
    made = {path for job in jobs for path in job.output}
    asked = {path for job in jobs if job.rule.name.startswith("infer_") for path in job.input} - made
    for name, entry in REPOSITORIES.items():
        kept = Path(in_results(manifest(name)))
        if str(kept) not in asked or Path(kept.with_suffix(""), "checkpoint.json").is_file():
            continue
        from workflow.models import hub

        files_on_record = {
            "known": known_files(SOURCES, entry),
            "code_files": code_files(SOURCES, OWN_CODE.get(name)),
        }
        place = {"local_folder": config["local_folder"], "offline": config["offline"]}
        try:
            hub.restore_checkpoint(name, kept, **entry, **files_on_record, **place)
        except BadInput as problem:
            raise WorkflowError(str(problem))


def local_place(wildcards, input):
    """The local folder that is looked into before the network, and whether the network is forbidden.

    Where a copy came from moves no logit: a parameter that asks for `input` is not tracked by Snakemake.
    """
    return [config["local_folder"], config["offline"]]


def inference_slot(kind, model, split, noise="", template=config["run"]["template"], measured=None, **differing):
    """A file of inference that this configuration asks for: the fields of Slot in workflow/lib/shard_kinds.py."""
    known = {"model": model, "split": split, "noise": noise, "template": template, "shard": "{shard}"}
    # a part of the signals states neither engine nor, for CLIP, shards
    unstated = {"signals": ["engine"], "clip": ["engine", "shards"]}.get(kind, [])
    expected = expected_identity(model, template) | differing
    return {
        "kind": kind,
        "place": in_results(f"<results>/{KINDS[kind].place}".format(**known)),
        "questions": in_results(KINDS[kind].questions.format(**known)),
        "expected": {field: value for field, value in expected.items() if field not in unstated},
        "measured": measured,
        **{field: known[field] for field in ("model", "split", "noise", "template")},
    }


def inference_work(rule, kind, part, like="", model="", split="", noise="", template=""):
    """What inference has to do with one model: the fields of Work in workflow/lib/plan.py."""
    place = in_results(f"<results>/{KINDS[kind].place}")
    known = {"model": model, "split": split, "noise": noise, "template": template}
    shards = SHARDS if "{shard}" in place else [0]
    asked = config["templates"]["questions"] if kind == "template" else config["dataset"]["rows"]
    return {
        **{"rule": rule, "model": model, "part": part, "like": like},
        "paths": tuple(place.format(shard=shard, **known) for shard in shards),
        "questions": min(asked, config["dataset"]["rows"]),
    }


def absent_shards(kind, wildcards):
    """The shards of a split that do not exist right now."""
    place = in_results(f"<results>/{KINDS[kind].place}")
    return [shard for shard in SHARDS if not Path(place.format(shard=shard, **wildcards)).exists()]


def family_module(model):
    """The adapter that inference loads by name for this model, under the transformers of its environment."""
    entry = config["models"][model]
    return environments.adapter_module(entry["family"], environment_of(model)["transformers"])


try:
    for model in MODELS:
        family_module(model)
except BadInput as problem:
    raise WorkflowError(f"models.{model}: {problem}")


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
