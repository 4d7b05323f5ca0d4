"""
Needs: the configuration of the models.
Makes: nothing; what the rules share that load a model or take what another machine made with one.
"""

from workflow.lib import environments
from workflow.lib.shard_import import is_imported
from workflow.lib.shard_kinds import KINDS


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
