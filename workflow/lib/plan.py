"""What of a study is done, and what the rest will cost: shards, GPU-hours, download and disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files


@dataclass(frozen=True)
class Row:
    """One (model, split): shards in all and done, questions left."""

    model: str
    split: str
    shards: int
    done: int
    questions_left: int


def done_speed(paths: Sequence[Path]) -> float | None:
    """Return the median seconds a question over done shards, None where no shard can be read."""
    found = []
    for path in paths:
        try:
            found.extend(pq.read_table(path, columns=["seconds"])["seconds"].to_pylist())
        except (pa.ArrowException, OSError):
            continue  # a damaged shard is refused where it is merged
    return float(np.median(found)) if found else None


def count(results: Path, models: Sequence[str], splits: Sequence[str], shards: int, rows: int) -> list[Row]:
    """Return shards done and questions left of every model and split; a split's questions are shared out evenly."""
    table = []
    for model in models:
        for split in splits:
            done = sum((results / "logits" / model / split / f"{number}.parquet").is_file() for number in range(shards))
            table.append(Row(model, split, shards, done, round(rows * (shards - done) / shards)))
    return table


def speeds(results: Path, models: Mapping[str, str], published: Path) -> dict[str, tuple[float | None, str]]:
    """Return model -> (seconds a question, where that comes from); done shards before published speeds."""
    stated = {row["model_id"]: row for row in files.read_csv(published).to_dict("records")}
    found: dict[str, tuple[float | None, str]] = {}
    for model, model_id in models.items():
        paths = sorted((results / "logits" / model).glob("*/*.parquet"))
        speed = done_speed(paths)
        if speed is not None:
            found[model] = (speed, f"median of {len(paths)} done shard{'s' if len(paths) > 1 else ''}")
        elif model_id in stated:
            row = stated[model_id]
            found[model] = (float(row["seconds_per_question"]), f"{row['note']}; device: {row['device']}")
        else:
            found[model] = (None, "unknown until a shard of it is done")
    return found


def lines(
    table: Sequence[Row],
    known: Mapping[str, tuple[float | None, str]],
    models: Mapping[str, str],
    sizes: Path,
    fetched: Mapping[str, bool] | None,
) -> list[str]:
    """Return the plan as lines of text.

    Parameters
    ----------
    fetched : mapping or None
        Model -> whether its checkpoint is here; None where checkpoints are trained here.
    """
    text = [f"{'model':<16} {'split':<12} {'shards':>6} {'done':>5} {'missing':>8} {'questions left':>15}"]
    for row in table:
        missing = row.shards - row.done
        text.append(
            f"{row.model:<16} {row.split:<12} {row.shards:>6} {row.done:>5} {missing:>8} {row.questions_left:>15,}"
        )
    text += ["", f"{'model':<16} {'s/question':>10} {'hours':>8}  speed taken from"]
    total, unknown = 0.0, []
    for model, (speed, source) in known.items():
        left = sum(row.questions_left for row in table if row.model == model)
        hours = None if speed is None else speed * left / 3600
        if left and hours is None:
            unknown.append(model)
        total += hours or 0.0
        shown = f"{speed:>10.3f} {hours:>8.2f}" if speed is not None else f"{'unknown':>10} {'unknown':>8}"
        text.append(f"{model:<16} {shown}  {source}")
    more = f", and what {', '.join(unknown)} will take" if unknown else ""
    text.append(f"{'ahead':<16} {'':>10} {total:>8.2f}  hours of inference{more}; loading a model is paid once a shard")
    if fetched is not None:
        text += ["", *_disk(fetched, models, sizes)]
    return text


def _disk(fetched: Mapping[str, bool], models: Mapping[str, str], sizes: Path) -> list[str]:
    stated = {row["model_id"]: row for row in files.read_csv(sizes).to_dict("records")}
    text = [f"{'checkpoint':<36} {'about GB':>9}  state"]
    download = disk = 0.0
    for model, here in fetched.items():
        row = stated.get(models[model])
        size = float(row["gigabytes"]) if row else 0.0
        disk += size
        download += 0.0 if here else size
        shown = f"{size:>9.1f}" if row else f"{'unknown':>9}"
        text.append(f"{models[model]:<36} {shown}  {'here' if here else 'to be fetched'}")
    text.append(f"download ahead about {download:.0f} GB; disk in the end about {disk:.0f} GB, results included")
    return text
