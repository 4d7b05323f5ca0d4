"""One inference shard from beginning to end: checkpoint and questions in, Parquet logits out."""

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import torch
from tqdm import tqdm

from workflow.lib import files, items, logits, tokens
from workflow.lib.errors import BadInput
from workflow.lib.prompts import Template
from workflow.models import engines, images
from workflow.models.adapter import Adapter, load_adapter
from workflow.models.precision import Precision

LIBRARIES = ("torch", "transformers", "tokenizers", "pillow", "numpy")


def infer(
    questions: str,
    image_table: str,
    checkpoint: str,
    out: str,
    *,
    shard: int,
    model: str,
    settings: Mapping,
    run: Mapping,
    token_sets: Mapping[str, Mapping[str, list[int]]],
    study: str,
    seed: int,
    code: str,
) -> None:
    """Answer the questions of one shard and write its logits.

    Everything that can be checked without the model is checked first: the images of all questions, their
    hashes, and that the precision can be had on this machine.

    Parameters
    ----------
    questions : str
        Items of the split (Parquet).
    image_table : str
        CSV with columns image and sha256; the images lie in ``images/`` beside it.
    checkpoint : str
        ``checkpoint.json`` in the checkpoint's folder.
    out : str
        The shard to write.
    shard : int
        Number of this shard, from 0.
    model : str
        Name of the model in the configuration.
    settings : mapping
        The model's entry in the configuration: family, model_id, revision, remote_code, and the template in force.
    run : mapping
        Of the ``run`` section: shards, engine, batch_size, device, dtype, quantisation, attention, threads.
    token_sets : mapping
        Declared token sets by name, each with yes and no ids; their union, together with the set that the
        model's own tokenizer gives, are the candidate ids.
    study, seed, code
        Recorded in the identity.

    Raises
    ------
    BadInput
        Before any inference where an image, an id or the machine does not fit.
    """
    torch.set_num_threads(run["threads"])
    torch.manual_seed(seed)
    table, origin = items.load(questions)
    rows = items.shard_rows(table["image"].to_pylist(), shard, run["shards"])
    table = table.take(rows)
    folder = Path(image_table).parent / "images"
    check_images(table, image_table, folder)
    precision = Precision(run["dtype"], run["quantisation"], run["device"], run["attention"])
    precision.check()
    manifest = files.read_json(checkpoint)
    check_checkpoint(checkpoint, manifest)
    if settings["family"] == "mplug_owl2" and not settings.get("remote_code"):
        raise BadInput(
            f"model {model} runs modelling code from its checkpoint: set models.{model}.remote_code to true if you "
            f"trust revision {settings['revision']} of {settings['model_id']}."
        )
    adapter = load_adapter(settings["family"], Path(checkpoint).parent, precision)
    template = Template(**settings["template"])
    sets = {name: tokens.TokenSet(tuple(ids["yes"]), tuple(ids["no"])) for name, ids in token_sets.items()}
    sets["dynamic_single"] = tokens.dynamic_single(adapter.forms)
    candidates = tokens.declared_ids(sets.values())
    identity = {
        "format": logits.FORMAT,
        "study": study,
        "model": model,
        "model_id": settings["model_id"],
        "revision": settings["revision"],
        "checkpoint": files.sha256(checkpoint),
        "tokenizer_class": type(adapter.tokenizer).__name__,
        "tokenizer": manifest["files"].get("tokenizer.json", ""),
        "template": template.name,
        "template_text": adapter.render(template, "{question}"),
        "dataset": origin["dataset"],
        "dataset_revision": origin["revision"],
        "dataset_sha256": origin["sha256"],
        "images_sha256": files.sha256(image_table),
        "split": origin["split"],
        "shard": shard,
        "shards": run["shards"],
        "dtype": run["dtype"],
        "quantisation": run["quantisation"],
        "attention": run["attention"],
        "batch_size": run["batch_size"],
        "engine": run["engine"],
        "device": run["device"],
        "device_name": device_name(run["device"]),
        "threads": run["threads"],
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "seed": seed,
        "code": code,
        "candidate_ids": list(candidates),
        "forms": {form: list(adapter.forms(form)) for form in (*tokens.YES_FORMS, *tokens.NO_FORMS)},
        "candidate_texts": {str(token): adapter.decode([token]) for token in candidates},
        "candidate_pieces": {str(token): adapter.tokenizer.convert_ids_to_tokens(token) for token in candidates},
        "token_sets": {name: {"yes": list(held.yes), "no": list(held.no)} for name, held in sorted(sets.items())},
        "rows": len(table),
    }
    answered = _answer(adapter, table, template, folder, candidates, run)
    logits.write(logits.Logits(pa.Table.from_pylist(answered, schema=logits.schema(candidates)), identity), out)


def _answer(
    adapter: Adapter,
    table: pa.Table,
    template: Template,
    folder: Path,
    candidates: tuple[int, ...],
    run: Mapping,
) -> list[dict]:
    polled = [
        engines.Question(
            row["dataset"], row["split"], row["id"], row["image"], adapter.render(template, row["question"])
        )
        for row in table.to_pylist()
    ]
    rows: list[dict] = []
    with tqdm(total=len(polled), unit="question", desc=f"{folder.parent.name} {run['engine']}", mininterval=2) as bar:
        engine = engines.ENGINES[run["engine"]]
        for batch in engine(
            adapter, polled, lambda name: images.open_image(folder / name), candidates, run["batch_size"]
        ):
            rows.extend(batch)
            bar.update(len(batch))
    return rows


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


def check_checkpoint(path: str, manifest: Mapping) -> None:
    """Refuse a checkpoint folder whose files are not those of its manifest."""
    folder = Path(path).parent
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file() or files.sha256(folder / name) != digest:
            raise BadInput(
                f"{folder / name} is missing or is not the file that {path} declares: delete {path} and build or fetch "
                "the checkpoint again."
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
