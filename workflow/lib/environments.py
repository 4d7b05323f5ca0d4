"""Which environment a model is run in, and which adapter fits the transformers found there.

A model names its environment in the configuration; ``envs/NAME.lock`` pins its versions. The papers ran several
versions of transformers, whose classes differ; `workflow.models.older` holds what those before 5 need.
"""

from collections.abc import Mapping

from workflow.lib.errors import BadInput

OLDER = ("llava", "llava_next", "instructblip", "qwen2_vl")
"""Families whose adapter for transformers before 5 is a module of its own."""

FIRST = {"qwen2_vl": (4, 45)}
"""The release of transformers in which a family is first found, where that is after 4.40."""


def is_older(transformers: str) -> bool:
    """Return whether a version of transformers is one before 5."""
    return int(transformers.split(".")[0]) < 5


def adapter_module(family: str, transformers: str) -> str:
    """Return the dotted name of the module that holds a family's adapter for a version of transformers.

    Raises
    ------
    BadInput
        Where that version does not have the family yet.
    """
    if tuple(map(int, transformers.split(".")[:2])) < FIRST.get(family, (0, 0)):
        raise BadInput(
            f"transformers {transformers} does not have the model family {family} yet: choose a later environment "
            "(models.*.environment)."
        )
    older = is_older(transformers) and family in OLDER
    return f"workflow.models.{'older.' if older else ''}{family}"


def check(model: str, environment: Mapping[str, str] | None, transformers: str) -> None:
    """Refuse a job that runs under another version of transformers than its model's environment declares.

    Other libraries may differ, such as the local version of torch; all are recorded in a shard's identity.

    Parameters
    ----------
    model : str
        Name of the model in the configuration.
    environment : mapping or None
        name, and the transformers version that its lock pins; None where the caller is no rule.
    transformers : str
        The version found.
    """
    if environment is None or environment["transformers"] == transformers:
        return
    name = environment["name"]
    raise BadInput(
        f"model {model} is run in environment {name}, which has transformers {environment['transformers']}, but "
        f"transformers {transformers} is installed here: make that environment once (python3 -m venv .venv-{name} && "
        f".venv-{name}/bin/pip install -r envs/{name}.lock) and run the same command with .venv-{name}/bin/snakemake "
        "and only this model's files as targets, or add --software-deployment-method conda, or set "
        f"models.{model}.environment to the environment that you mean."
    )


def need_current(what: str, transformers: str) -> None:
    """Refuse what is written for transformers 5 and later only, before anything is loaded."""
    if is_older(transformers):
        raise BadInput(
            f"{what} needs transformers 5 or later and {transformers} is installed here: run it in the environment cpu "
            "or gpu (models.*.environment)."
        )
