"""What of a study is done, and what the rest will cost: files of inference, GPU-hours, download and disk."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workflow.lib import files

UNKNOWN = "unknown until one is done"


@dataclass(frozen=True)
class Work:
    """What one rule has to do with one model, in files of equal size.

    Attributes
    ----------
    rule, model, part : str
        ``part`` tells apart what one rule does with one model: a split, a template, a kind of noise.
    paths : tuple of str
        The files that it makes.
    questions : int
        Questions in all files together.
    like : str
        A rule whose passes cost the same; its speed is taken while none is known. "" for none.
    """

    rule: str
    model: str
    part: str
    paths: tuple[str, ...]
    questions: int
    like: str = ""


@dataclass(frozen=True)
class Row:
    """Files in all and done of one work, and its questions left."""

    work: Work
    done: int
    left: int


def count(works: Sequence[Work]) -> list[Row]:
    """Return what is done and left of every work; questions are shared out evenly among its files."""
    rows = []
    for work in works:
        done = sum(Path(path).is_file() for path in work.paths)
        rows.append(Row(work, done, round(work.questions * (len(work.paths) - done) / len(work.paths))))
    return rows


def seconds_of(path: Path, benchmark: Path) -> list[float]:
    """Return what is recorded of the seconds a question in a done file, [] where nothing is.

    Files of the logits contract state them row by row. Of others the job's own time is divided by its questions, so
    that loading the model is in it.
    """
    try:
        table = pq.ParquetFile(path)
        if "seconds" in table.schema_arrow.names:
            return table.read(columns=["seconds"])["seconds"].to_pylist()
        with open(benchmark, encoding="utf-8", newline="") as stream:
            spent = [float(row["s"]) for row in csv.DictReader(stream, delimiter="\t")]
        rows = table.metadata.num_rows
        return [seconds / rows for seconds in spent if rows]
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return []  # a damaged file is refused where it is used


def speeds(
    works: Sequence[Work], results: Path, published: Path, models: Mapping[str, str]
) -> dict[tuple[str, str], tuple[float | None, str]]:
    """Return (rule, model) -> (seconds a question, where that comes from).

    Taken are, in this order: done files of the rule and model, published speeds of the main passes, and the same of
    the rule that the work is like. None where nothing is known.
    """
    stated = {row["model_id"]: row for row in files.read_csv(published).to_dict("records")}
    found: dict[tuple[str, str], tuple[float | None, str]] = {}
    # what others are like comes first
    for work in sorted(works, key=lambda work: bool(work.like)):
        key = (work.rule, work.model)
        if key in found:
            continue
        paths = [path for other in works if (other.rule, other.model) == key for path in map(Path, other.paths)]
        done = [path for path in paths if path.is_file()]
        spent = [second for path in done for second in seconds_of(path, _benchmark(path, work.rule, results))]
        row = stated.get(models[work.model])
        if spent:
            found[key] = float(np.median(spent)), f"median of {len(done)} done file{'s' if len(done) > 1 else ''}"
        elif work.rule == "infer_shard" and row is not None:
            found[key] = float(row["seconds_per_question"]), f"{row['note']}; device: {row['device']}"
        elif found.get((work.like, work.model), (None,))[0] is not None:
            found[key] = found[work.like, work.model][0], f"as {work.like}"
        else:
            found[key] = None, UNKNOWN
    return {(work.rule, work.model): found[work.rule, work.model] for work in works}


def _benchmark(path: Path, rule: str, results: Path) -> Path:
    """Return where the time of the job that made a file is recorded: by rule, then as below the file's first folder."""
    return results / "benchmarks" / rule / Path(*path.relative_to(results).parts[1:]).with_suffix(".tsv")


def lines(
    rows: Sequence[Row],
    known: Mapping[tuple[str, str], tuple[float | None, str]],
    downloads: Sequence[tuple[str, float | None, bool]] | None,
) -> list[str]:
    """Return the plan as lines of text.

    Parameters
    ----------
    rows : sequence of Row
    known : mapping
        As `speeds` returns.
    downloads : sequence of (name, gigabytes, here) or None
        What is fetched; gigabytes None where unknown. None where nothing is fetched.
    """
    text = [f"{'rule':<15} {'model':<16} {'part':<30} {'files':>6} {'done':>5} {'missing':>8} {'questions left':>15}"]
    for row in rows:
        work = row.work
        text.append(
            f"{work.rule:<15} {work.model:<16} {work.part:<30} {len(work.paths):>6} {row.done:>5} "
            f"{len(work.paths) - row.done:>8} {row.left:>15,}"
        )
    text += ["", f"{'rule':<15} {'model':<16} {'s/question':>10} {'hours':>8}  speed taken from"]
    hours: dict[str, float] = {}
    unknown: dict[str, list[str]] = {}
    for (rule, model), (speed, source) in known.items():
        left = sum(row.left for row in rows if (row.work.rule, row.work.model) == (rule, model))
        hours.setdefault(rule, 0.0)
        if speed is None:
            shown = f"{'unknown':>10} {'unknown' if left else '0.00':>8}"
            unknown.setdefault(rule, []).extend([model] if left else [])
        else:
            shown = f"{speed:>10.3f} {speed * left / 3600:>8.2f}"
            hours[rule] += speed * left / 3600
        text.append(f"{rule:<15} {model:<16} {shown}  {source}")
    text += ["", f"{'rule':<15} {'hours':>8}"]
    for rule, spent in hours.items():
        missing = ", ".join(unknown.get(rule, []))
        figure = f"{spent:.2f}" if spent or not missing else "unknown"
        more = f"  without {missing}, of unknown speed" if spent and missing else ""
        text.append(f"{rule:<15} {figure:>8}{more}")
    more = ", and what is unknown above" if any(unknown.values()) else ""
    text.append(f"{'ahead':<15} {sum(hours.values()):>8.2f}  hours of inference{more}; each file loads its model once")
    return text if downloads is None else [*text, "", *_disk(downloads)]


def _disk(downloads: Sequence[tuple[str, float | None, bool]]) -> list[str]:
    text = [f"{'to be fetched once':<40} {'about GB':>9}  state"]
    for name, size, here in downloads:
        shown = f"{size:>9.1f}" if size is not None and size >= 0.05 else f"{size:>9.3f}" if size else f"{'unknown':>9}"
        text.append(f"{name:<40} {shown}  {'here' if here else 'to be fetched'}")
    ahead = sum(size or 0.0 for _, size, here in downloads if not here)
    whole = sum(size or 0.0 for _, size, _ in downloads)
    unknown = [name for name, size, _ in downloads if size is None]
    more = f", and what {', '.join(unknown)} takes" if unknown else ""
    return [
        *text,
        f"download ahead about {ahead:.0f} GB; disk about {whole:.0f} GB while all of it is kept{more} (a checkpoint "
        "may be deleted when its files are done)",
    ]


def download_sizes(sizes: Path, wanted: Mapping[str, tuple[str, str]]) -> list[tuple[str, float | None, bool]]:
    """Return what is fetched with its size and whether it is here.

    Parameters
    ----------
    sizes : path
        ``workflow/published/sizes.csv``.
    wanted : mapping
        Name in that table -> (what to call it, a file that is there once it was fetched).
    """
    stated = {row["name"]: float(row["gigabytes"]) for row in files.read_csv(sizes).to_dict("records")}
    return [(shown, stated.get(name), Path(mark).is_file()) for name, (shown, mark) in wanted.items()]
