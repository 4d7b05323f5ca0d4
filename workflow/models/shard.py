"""One inference shard from beginning to end: checkpoint and questions in, Parquet logits out."""

from collections.abc import Mapping
from importlib import metadata

import pyarrow as pa
from tqdm import tqdm

from workflow.lib import environments, logits, tokens
from workflow.models import engines, images, subject


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
    environment: Mapping[str, str] | None = None,
    kind: str = "logits",
    noise: str = "",
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
        The checkpoint's manifest: ``checkpoint.json`` in its folder, or ``NAME.json`` beside the folder NAME.
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
    environment : mapping, optional
        Name of the model's environment and its transformers version (`workflow.lib.environments.check`).
    kind, noise : str
        What of `workflow.lib.shard_kinds` this is, and which noise it was made under, "" for none; recorded.

    Raises
    ------
    BadInput
        Before any inference where an image, an id or the machine does not fit.
    """
    if run["engine"] == "shared_prefix" and settings["family"] in environments.OLDER:
        environments.need_current("the engine shared_prefix (run.engine)", metadata.version("transformers"))
    held = subject.load(
        questions,
        image_table,
        checkpoint,
        model=model,
        settings=settings,
        run=run,
        study=study,
        seed=seed,
        code=code,
        environment=environment,
        shard_number=shard,
    )
    adapter = held.adapter
    sets = {name: tokens.TokenSet(tuple(ids["yes"]), tuple(ids["no"])) for name, ids in token_sets.items()}
    sets["dynamic_single"] = tokens.dynamic_single(adapter.forms)
    candidates = tokens.declared_ids(sets.values())
    identity = held.identity | {
        "format": logits.FORMAT,
        "kind": kind,
        "noise": noise,
        "shard": shard,
        "shards": run["shards"],
        "engine": run["engine"],
        "candidate_ids": list(candidates),
        "forms": {form: list(adapter.forms(form)) for form in (*tokens.YES_FORMS, *tokens.NO_FORMS)},
        "candidate_texts": {str(token): adapter.decode([token]) for token in candidates},
        "candidate_pieces": {str(token): adapter.tokenizer.convert_ids_to_tokens(token) for token in candidates},
        "token_sets": {
            name: {"yes": list(declared.yes), "no": list(declared.no)} for name, declared in sorted(sets.items())
        },
        "rows": len(held.table),
    }
    answered = _answer(held, candidates, run)
    logits.write(logits.Logits(pa.Table.from_pylist(answered, schema=logits.schema(candidates)), identity), out)


def _answer(held: subject.Subject, candidates: tuple[int, ...], run: Mapping) -> list[dict]:
    polled = [
        engines.Question(
            row["dataset"], row["split"], row["id"], row["image"], held.adapter.render(held.template, row["question"])
        )
        for row in held.table.to_pylist()
    ]
    rows: list[dict] = []
    title = f"{held.identity['model']} {held.identity['split']}"
    with (
        held.adapter.shortage_named(run["batch_size"]),
        tqdm(total=len(polled), unit="question", desc=title, mininterval=2) as bar,
    ):
        engine = engines.ENGINES[run["engine"]]
        for batch in engine(
            held.adapter,
            polled,
            lambda question: images.open_image(held.images / question.image),
            candidates,
            run["batch_size"],
        ):
            rows.extend(batch)
            bar.update(len(batch))
    order = {question.id: place for place, question in enumerate(polled)}
    return sorted(rows, key=lambda row: order[row["id"]])
