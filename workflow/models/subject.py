"""A model with the questions put to it, loaded and checked as one."""

import platform
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import torch

from workflow.lib import environments, files, items, tokens
from workflow.lib.errors import BadInput
from workflow.lib.prompts import Template
from workflow.lib.tokens import TokenSet
from workflow.models.adapter import Adapter, load_adapter
from workflow.models.precision import Precision

LIBRARIES = ("torch", "transformers", "tokenizers", "pillow", "numpy")
"""Libraries whose versions may move a logit."""


@dataclass(frozen=True)
class Subject:
    """A loaded model and what it is asked.

    Attributes
    ----------
    adapter : Adapter
    table : pyarrow.Table
        Items, those of one shard or all of a split.
    images : Path
        Folder of their images.
    template : Template
    identity : dict
        All that may move a number measured on this model (`workflow.lib.signal_parts`).
    """

    adapter: Adapter
    table: pa.Table
    images: Path
    template: Template
    identity: dict


def load(
    questions: str,
    image_table: str,
    checkpoint: str,
    *,
    model: str,
    settings: Mapping,
    run: Mapping,
    study: str,
    seed: int,
    code: str,
    environment: Mapping[str, str] | None = None,
    shard_number: int | None = None,
) -> Subject:
    """Load a checkpoint and the questions put to it.

    Environment, images, checkpoint and precision are checked before the model is loaded. Arguments are those of
    `workflow.models.shard.infer`; without ``shard_number`` all questions of the split are taken.

    Raises
    ------
    BadInput
        Where an image, the checkpoint or the machine does not fit.
    """
    environments.check(model, environment, metadata.version("transformers"))
    torch.set_num_threads(run["threads"])
    torch.manual_seed(seed)
    table, origin = items.load(questions)
    if shard_number is not None:
        table = table.take(items.shard_rows(table["image"].to_pylist(), shard_number, run["shards"]))
    folder = Path(image_table).parent / "images"
    check_images(table, image_table, folder)
    precision = Precision(run["dtype"], run["quantisation"], run["device"], run["attention"])
    precision.check()
    manifest = files.read_json(checkpoint)
    begun = time.perf_counter()
    check_checkpoint(checkpoint, manifest, run["threads"])
    checked = time.perf_counter()
    if settings["family"] == "mplug_owl2" and not settings.get("remote_code"):
        code = settings.get("code") or {"repository": settings["model_id"], "revision": settings["revision"]}
        raise BadInput(
            f"model {model} runs modelling code of its authors: set models.{model}.remote_code to true if you trust "
            f"revision {code['revision']} of {code['repository']}."
        )
    with precision.shortage_named(f"while {model} was loaded"):
        adapter = load_adapter(settings["family"], folder_of(checkpoint), precision)
    print(
        f"{model}: checkpoint checked in {checked - begun:.1f} s, loaded in {time.perf_counter() - checked:.1f} s",
        file=sys.stderr,
    )
    template = Template(**settings["template"])
    identity = {
        "study": study,
        "model": model,
        "model_id": settings["model_id"],
        "revision": settings["revision"],
        "checkpoint": files.sha256(checkpoint),
        "tokenizer_class": type(adapter.tokenizer).__name__,
        "tokenizer": manifest["files"].get("tokenizer.json") or manifest["files"].get("tokenizer.model", ""),
        "template": template.name,
        "template_text": adapter.render(template, "{question}"),
        "dataset": origin["dataset"],
        "dataset_revision": origin["revision"],
        "dataset_sha256": origin["sha256"],
        "images_sha256": files.sha256(image_table),
        "split": origin["split"],
        **{name: run[name] for name in ("dtype", "quantisation", "attention", "batch_size", "device", "threads")},
        **adapter.as_loaded,
        "device_name": device_name(run["device"]),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "seed": seed,
        "code": code,
    }
    return Subject(adapter, table, folder, template, identity)


def baseline_set(adapter: Adapter) -> tuple[str, TokenSet]:
    """Return name and ids of the set that the baseline reads: eight tokens of LLaMA's vocabulary, else the dynamic set.

    A vocabulary counts as LLaMA's where the eight ids are the forms of yes and no that they stand for there.
    """
    eight = tokens.LEGACY_8TOK
    size = len(adapter.tokenizer)
    for answer in ("yes", "no"):
        ids = getattr(eight, answer)
        pieces = adapter.tokenizer.convert_ids_to_tokens(list(ids)) if max(ids) < size else [""]
        if any(str(piece).lstrip("▁").lower() != answer for piece in pieces):
            return "dynamic_single", tokens.dynamic_single(adapter.forms)
    return "legacy_8tok", eight


def check_images(table: pa.Table, image_table: str, folder: Path) -> None:
    """Refuse missing or altered images before inference starts, with the ids of the questions they affect."""
    declared = {}
    with open(image_table, encoding="utf-8") as stream:
        next(stream)
        for line in stream:
            name, digest = line.rstrip("\n").split(",")
            declared[name] = digest
    wanted: dict[str, list[int]] = {}
    for name, question in zip(table["image"].to_pylist(), table["id"].to_pylist(), strict=True):
        wanted.setdefault(name, []).append(question)
    for name, affected in wanted.items():
        path = folder / name
        if name not in declared or not path.is_file():
            what, mend = "is missing", "fetch or build the images again"
        elif files.sha256(path) != declared[name]:
            what, mend = (
                f"is not the file that {image_table} declares",
                "restore it or build the images again",
            )
        else:
            continue
        raise BadInput(f"{path} {what}; questions {', '.join(map(str, affected))} need it: {mend}.")


def folder_of(manifest: str | Path) -> Path:
    """Return the folder of a checkpoint: that of its ``checkpoint.json``, or NAME for ``NAME.json`` beside it."""
    manifest = Path(manifest)
    return manifest.parent if manifest.stem == "checkpoint" else manifest.with_suffix("")


def check_checkpoint(path: str, manifest: Mapping, threads: int = 1) -> None:
    """Refuse a checkpoint folder whose files are not those of its manifest; ``threads`` files are read at a time."""
    folder = folder_of(path)
    paths = [folder / name for name in manifest["files"]]
    with ThreadPoolExecutor(threads) as pool:
        digests = pool.map(lambda path: files.sha256(path) if path.is_file() else "", paths)
        for found, digest, declared in zip(paths, digests, manifest["files"].values(), strict=True):
            if digest != declared:
                raise BadInput(
                    f"{found} is missing or is not the file that {path} declares: delete "
                    f"{folder / 'checkpoint.json'} and run the same command again, which builds or fetches it."
                )


def device_name(device: str) -> str:
    """Return the name of the processor that computes; "cpu" results depend on its kind."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            model = next((line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")), model)
    except OSError:
        pass
    return model
