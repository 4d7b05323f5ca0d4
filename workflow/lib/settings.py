"""The configuration, checked before anything runs: one sentence for the first thing that is wrong."""

import difflib
import functools
import json
import operator
from collections.abc import Iterable, Mapping

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from workflow.lib.errors import BadInput
from workflow.lib.readouts import NAMES


def read_numbers(config: Mapping, schema: Mapping) -> None:
    """Turn texts into the numbers and booleans that the schema expects, in place.

    Snakemake gives nested values of ``--config run="{shards: 4}"`` as text. A text that is no such value stays.
    """
    for error in Draft202012Validator(schema).iter_errors(config):
        if error.validator != "type" or not isinstance(error.instance, str):
            continue
        try:
            value = json.loads(error.instance)
        except ValueError:
            continue
        if Draft202012Validator(error.schema).is_valid(value):
            *path, last = error.absolute_path
            functools.reduce(operator.getitem, path, config)[last] = value


def check_settings(config: Mapping, schema: Mapping) -> None:
    """Refuse a configuration that breaks the schema, or whose names do not refer to anything.

    Raises
    ------
    BadInput
        Names the key, the value, what was expected and, for a misspelt name, the nearest known one.
    """
    error = best_match(Draft202012Validator(schema).iter_errors(config))
    if error:
        raise BadInput(_sentence(error))
    for name in config["readouts"]["names"]:
        _known("readouts.names", name, NAMES)
    models, run = config["models"], config["run"]
    for name in run["models"]:
        _known("run.models", name, models)
        entry = models[name]
        _known(f"models.{name}.string_parse", entry["string_parse"], config["readouts"]["names"])
        if config["begins_at"] == "model" and run["template"] not in entry["templates"]:
            raise BadInput(
                f"run.template is {run['template']!r}, which model {name} does not have: choose one of "
                f"{', '.join(entry['templates'])}, or add it below models.{name}.templates."
            )
        for template, text in entry["templates"].items():
            _known(f"models.{name}.templates.{template}", text, config["prompts"])
    for split in run["splits"]:
        if split not in config["dataset"]["sha256"]:
            raise BadInput(f"dataset.sha256 has no entry for split {split}: add one, empty if the file is made here.")


def _known(key: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name not in known:
        raise BadInput(f"{key}: {name!r} is not known{_nearest(name, known)}: use one of {', '.join(known)}.")


def _nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(str(name), [str(word) for word in known], n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _sentence(error: ValidationError) -> str:
    place = ".".join(map(str, error.absolute_path)) or "the configuration"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        name = next(key for key in error.instance if key not in known)
        return f"{place}: key {name!r} is not known{_nearest(name, known)}: remove or correct it."
    return f"{place}: {error.message}: correct it in config.yaml or in the overlay."
