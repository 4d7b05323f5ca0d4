"""What every script shares: its log file, one sentence for bad input, and the stamp of its results."""

import platform
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from workflow.lib import files
from workflow.lib.errors import BadInput

LIBRARIES = (
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "matplotlib",
    "torch",
    "transformers",
    "tokenizers",
    "pillow",
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed libraries that results may depend on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


class Job:
    """The parts of Snakemake's job object that a script may use.

    ``config`` is left out on purpose: what a script reads must be an input or a parameter, or a change of it
    would not be noticed.
    """

    def __init__(self, snakemake: object) -> None:
        self.input = snakemake.input
        self.output = snakemake.output
        self.params = snakemake.params
        self.wildcards = snakemake.wildcards
        self.threads = snakemake.threads
        self.rule = snakemake.rule
        self.log = Path(snakemake.log[0]) if snakemake.log else None

    def conditions(self) -> dict[str, object]:
        """Return what every job is told that runs a model, as keyword arguments (`workflow.models.subject.load`)."""
        names = ("settings", "run", "study", "seed", "code", "environment")
        return {"model": self.wildcards.model} | {name: getattr(self.params, name) for name in names}

    def stamp(self) -> dict[str, object]:
        """Return where the result of this job comes from, as plain JSON values.

        Keys: study, rule, wildcards, inputs (path and sha256 of each), code (digest of the modules used),
        versions; and note and planted where the rule hands them over as parameters.
        """
        parameters = dict(self.params.items())
        origin = {
            "study": parameters.get("study", ""),
            "rule": self.rule,
            "wildcards": dict(self.wildcards.items()),
            "inputs": [{"path": str(path), "sha256": files.sha256(path)} for path in self.input],
            "code": parameters["code"],
            "versions": versions(),
        }
        origin.update({key: parameters[key] for key in ("note", "planted") if parameters.get(key)})
        return origin


@contextmanager
def opened(snakemake: object) -> Iterator[Job]:
    """Run the body of a script: keep its errors in its log file and show bad input as one sentence.

    `BadInput` ends the process with status 1 after that one sentence; any other exception also leaves its
    traceback in the log. An empty log means that nothing went wrong.
    """
    job = Job(snakemake)
    if job.log:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        job.log.write_text("", encoding="utf-8")
    try:
        yield job
    except BadInput as problem:
        _tell(job, f"error: {problem}\n")
        sys.exit(1)
    except Exception:
        _tell(job, traceback.format_exc())
        sys.exit(1)


def _tell(job: Job, text: str) -> None:
    if job.log:
        job.log.write_text(text, encoding="utf-8")
    sys.stderr.write(text)
    sys.stderr.flush()
