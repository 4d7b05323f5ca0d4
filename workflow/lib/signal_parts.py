"""The parts that a signals table is joined from: shards of the instrumented pass, CLIP similarities, noise passes.

Each part is measured by a job of its own and names the conditions that it was measured under. Parts are joined by
key and only where those conditions agree. What needs no model is done here: certainties from similarities, and the
maxima of a token set in a noise pass.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files, signals
from workflow.lib.errors import BadInput
from workflow.lib.items import KEY
from workflow.lib.logits import Logits

METADATA_KEY = b"readout_audit"
ATTENTION = (
    "attention",
    "entropy_certainty",
    "object_noun_certainty",
    "magnitude_certainty",
    "cls_certainty",
    "midpoint_certainty",
    "entropy_certainty_paper",
    "magnitude_certainty_paper",
)
"""Signals of the instrumented pass, all in one shard file beside yes_max and no_max."""
SIMILARITIES = {
    "b": ("clip_b_similarity", "clip_b_patch_similarity", "clip_b_image_similarity"),
    "l": ("clip_l_similarity", "clip_l_cls_similarity"),
}
"""Cosines that the two CLIP models give, from -1 to 1: the best crop, the best patch and the whole image of CLIP-B;
the best patch and the class position of CLIP-L."""
CLIP_SIGNALS = {
    "b": ("clip_b_certainty", "clip_b_certainty_paper", "object_noun_certainty_paper"),
    "l": ("clip_l_similarity", "clip_l_certainty", "cls_certainty_paper"),
}
NOISES = {
    "random_image": ("vcd_yes_max", "vcd_no_max"),
    "gaussian_embedding": ("vcd_yes_max_paper", "vcd_no_max_paper"),
}
"""Kinds of noise in the second pass, and the signals that each gives: as run, and as the paper's text says."""
MEDIAN = "median"
"""Centre of a sigmoid that is read from the CLIP checkpoint: its median similarity on training scenes."""
TRAINED = "trained here"
"""Revision of a CLIP checkpoint whose manifest states none."""

AGREE = (
    "study",
    "model",
    "model_id",
    "revision",
    "checkpoint",
    "template",
    "template_text",
    "dataset",
    "dataset_revision",
    "dataset_sha256",
    "images_sha256",
    "split",
    "dtype",
    "quantisation",
    "parameter_types",
    "quantised",
)
"""Conditions in which all parts of one table must agree."""


@dataclass(frozen=True)
class Part:
    """Rows with their key, and the conditions that they were measured under.

    ``missing`` in the identity says, by column, why a part lacks it.
    """

    frame: pd.DataFrame
    identity: dict = field(default_factory=dict)


def save(frame: pd.DataFrame, path: str | Path, identity: dict) -> None:
    """Write a part as Parquet: key, numbers as float32, texts; a number that is not finite is refused."""
    fields = []
    for name in frame.columns:
        if name in KEY:
            fields.append(pa.field(name, pa.int64() if name == "id" else pa.string(), nullable=False))
        elif frame[name].dtype.kind == "f":
            bad = ~np.isfinite(frame[name].to_numpy())
            if bad.any():
                raise BadInput(
                    f"{path} id {frame['id'][bad].iloc[0]}: {name} is {frame[name][bad].iloc[0]} where a finite number "
                    "is expected: look at that image and at the checkpoint's weights."
                )
            fields.append(pa.field(name, pa.float32(), nullable=False))
        else:
            fields.append(pa.field(name, pa.string(), nullable=False))
    table = pa.Table.from_pandas(frame, schema=pa.schema(fields), preserve_index=False)
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(identity, sort_keys=True).encode()})
    with files.write_atomically(path) as temporary:
        pq.write_table(table, temporary)


def load(path: str | Path) -> Part:
    """Return a part that `save` wrote; BadInput where it is none."""
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is not a whole Parquet file ({error}): delete it and run its job again.") from None
    stored = (table.schema.metadata or {}).get(METADATA_KEY)
    if stored is None or any(name not in table.column_names for name in KEY):
        raise BadInput(f"{path} has no key or no metadata: it is no part of a signals table, so rebuild it.")
    return Part(table.to_pandas(), json.loads(stored))


def sigmoid(similarity: np.ndarray, slope: float, centre: float) -> np.ndarray:
    """Return 1 / (1 + exp(-slope (similarity - centre))) as float64 from 0 to 1."""
    # tanh does not overflow, whatever the slope
    return 0.5 * (1 + np.tanh(0.5 * slope * (np.asarray(similarity, np.float64) - centre)))


def clip_signals(frame: pd.DataFrame, which: str, settings: Mapping) -> pd.DataFrame:
    """Return the signals that one CLIP model's similarities give.

    The certainties as run are sigmoids. The paper's text speaks of cosines as certainties in [0, 1] and does not
    say how they get there; here a cosine below 0 counts as 0.

    Parameters
    ----------
    frame : pandas.DataFrame
        Similarities, columns `SIMILARITIES`.
    which : "b" or "l"
    settings : mapping
        ``slope`` and ``centre`` (a number) of the sigmoid.
    """
    first, *others = (frame[name].to_numpy(np.float64) for name in SIMILARITIES[which])
    columns = {f"clip_{which}_certainty": sigmoid(first, settings["slope"], settings["centre"])}
    if which == "b":
        columns |= {
            "clip_b_certainty_paper": others[0].clip(0, 1),
            "object_noun_certainty_paper": others[1].clip(0, 1),
        }
    else:
        columns |= {"clip_l_similarity": first, "cls_certainty_paper": others[0].clip(0, 1)}
    return pd.DataFrame(columns).astype(np.float32)


def centre(settings: Mapping, checkpoint: Mapping, name: str) -> float:
    """Return the centre of a sigmoid: the number in the settings, or for "median" the one in the checkpoint.

    A CLIP model that the workflow trains has cosines of its own scale, so a constant found on another model
    cuts them anywhere; its manifest states the median over training questions.
    """
    if settings["centre"] != MEDIAN:
        return float(settings["centre"])
    found = checkpoint.get("calibration", {}).get("median_similarity")
    if found is None:
        raise BadInput(
            f"signals.clip.{name}.centre is {MEDIAN!r} but the checkpoint states no median_similarity, as only those "
            "that this workflow trains do: give a number; the paper's are 0.22 (CLIP-B/32) and 0.27 (CLIP-L)."
        )
    return float(found)


def noise_engine(kind: str, settings: Mapping) -> str:
    """Return the name that stands as engine in the identity of a noise shard; it says all that moves a logit."""
    scale = f", scale {settings['scale']}" if kind == "gaussian_embedding" else ""
    return f"reference with {kind} noise, seed {settings['seed']}{scale}"


def join(
    questions: pa.Table,
    shards: Sequence[tuple[str, Part]],
    clip: tuple[str, Part] | None,
    noise: Mapping[str, tuple[str, Logits]],
    settings: Mapping,
    expected: Mapping,
) -> tuple[pd.DataFrame, dict]:
    """Join the parts of one signals table by key.

    Parameters
    ----------
    questions : pyarrow.Table
        Items of the split; every one must be in every part exactly once.
    shards : sequence of (name, Part)
        All shards of the instrumented pass.
    clip : (name, Part) or None
        Similarities of the CLIP models; None where none is configured.
    noise : mapping of kind to (name, Logits)
        Merged noise passes, some of `NOISES`.
    settings : mapping
        By "b" and "l": ``slope`` and ``centre`` as a number; a CLIP model that is not configured is absent.
    expected : mapping
        Conditions that the configuration fixes now; fields that a part does not state are not compared.

    Returns
    -------
    (frame, metadata) for `workflow.lib.signals.save`. ``missing`` in the metadata says why a signal is absent.

    Raises
    ------
    BadInput
        Names the part and the field, or the missing, repeated or foreign question.
    """
    first_name, first = shards[0]
    named = [*shards, *([clip] if clip else []), *noise.values()]
    for name, part in named:
        for condition in AGREE:
            found, wanted = part.identity.get(condition), first.identity.get(condition)
            if found != wanted:
                raise BadInput(
                    f"{name} and {first_name} do not belong together ({condition}: {str(found)[:60]} | "
                    f"{str(wanted)[:60]}): rebuild one of them under the other's conditions."
                )
            if condition in expected and found != expected[condition]:
                raise BadInput(
                    f"{name} was made with {condition} {str(found)[:60]} where the configuration says "
                    f"{str(expected[condition])[:60]}: delete it to run it again, or restore the configuration."
                )
    for name, part in shards[1:]:
        if part.identity["measured"] != first.identity["measured"]:
            raise BadInput(f"{name} and {first_name} were measured under different signal settings: rebuild one.")
    whole = pd.concat([part.frame for _, part in shards], ignore_index=True)
    columns = _aligned(questions, whole, first_name)[["yes_max", "no_max", *ATTENTION]]
    measured = first.identity["measured"]
    missing: dict[str, str] = {}
    gathered = [columns]
    for which, signal_names in CLIP_SIGNALS.items():
        reason = ""
        if clip is None or which not in settings:
            reason = f"signals.clip.{which} names no checkpoint"
        elif SIMILARITIES[which][0] not in clip[1].frame:
            reason = clip[1].identity["missing"].get(which, "not measured")
        if reason:
            missing |= dict.fromkeys(signal_names, reason)
        else:
            gathered.append(clip_signals(_aligned(questions, clip[1].frame, clip[0]), which, settings[which]))
    for kind, names in NOISES.items():
        if kind in noise:
            gathered.append(noise_maxima(questions, *noise[kind], measured["ids"], names))
        else:
            missing |= dict.fromkeys(names, f"signals.noise.kinds does not name {kind}")
    keys = questions.select([*KEY, "label"]).to_pandas()
    frame = pd.concat([keys, *gathered], axis=1)
    # strict, as every readout here: a tie says no
    frame["answer"] = np.where(frame["yes_max"] > frame["no_max"], "yes", "no")
    metadata = {
        **{name: first.identity[name] for name in AGREE},
        "basis": "model",
        "measured": measured,
        "clip": {} if clip is None else clip[1].identity["measured"],
        "certainties": {which: dict(values) for which, values in settings.items()},
        "noise": {kind: passed.identity["engine"] for kind, (_, passed) in noise.items()},
        "missing": missing,
    }
    return frame[[*signals.SCHEMA.names, *(name for name in signals.OPTIONAL if name in frame)]], metadata


def noise_maxima(
    questions: pa.Table, name: str, noise: Logits, ids: Mapping[str, Sequence[int]], columns: tuple[str, str]
) -> pd.DataFrame:
    """Return the maxima of both sides of a token set in a noise pass, in the order of the questions."""
    table = noise.table
    held = pd.DataFrame({key: table[key].to_pylist() for key in KEY})
    for column, side in zip(columns, ("yes", "no"), strict=True):
        lacking = [token for token in ids[side] if f"logit_{token}" not in table.column_names]
        if lacking:
            raise BadInput(
                f"{name} stores no logit of id {lacking[0]}: add its token set to readouts.token_sets and run the "
                "noise pass again."
            )
        held[column] = np.max([table[f"logit_{token}"].to_numpy() for token in ids[side]], axis=0)
    return _aligned(questions, held, name)[list(columns)]


def _aligned(questions: pa.Table, frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows in the order of the questions."""
    keys = list(zip(*(frame[key].tolist() for key in KEY), strict=True))
    order = {key: row for row, key in enumerate(keys)}
    wanted = list(zip(*(questions[key].to_pylist() for key in KEY), strict=True))
    if len(order) != len(keys):
        repeated = next(key for row, key in enumerate(keys) if order[key] != row)
        raise BadInput(f"{name}: question {repeated} occurs more than once: rebuild it.")
    absent = [key for key in wanted if key not in order]
    foreign = order.keys() - set(wanted)
    if absent or foreign:
        what = f"question {absent[0]} is missing" if absent else f"question {min(foreign)} is not among the items"
        raise BadInput(f"{name}: {what} ({len(absent)} missing, {len(foreign)} foreign): rebuild it.")
    return frame.iloc[[order[key] for key in wanted]].reset_index(drop=True)
