"""Modelling code that a model needs and its repository does not hold: fetched, checked, and imported where it lies."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from workflow.lib import downloads, files
from workflow.lib.errors import BadInput

FOLDER = "code"
"""Folder of a checkpoint for such code."""


def fetch(target: Path, source: Mapping, **ways: object) -> str:
    """Bring one file to its place and return its SHA-256.

    A link to a local copy is taken if it is right; anything else is asked for anew, because a file without a hash on
    file cannot be told from a changed one.

    Parameters
    ----------
    source : mapping
        url, sha256 and bytes, as `workflow.lib.sources.Source.identity` gives them.
    ways
        ``attempts`` and ``pause`` of `workflow.lib.downloads.download`; the rest is of the hub and left out.

    Raises
    ------
    BadInput
        Where the copy or the answer is not that file, or at least not Python.
    """
    if target.is_symlink() and target.is_file():
        wrong = problem(target, source)
        if wrong:
            raise BadInput(f"{target.resolve()} {wrong}: put {source['url']} there, or remove it to have it fetched.")
    else:
        target.unlink(missing_ok=True)
        downloads.download(
            source["url"],
            target,
            size=source["bytes"],
            check=lambda path: problem(path, source),
            remedy=f"run the same command again, or put the file at {target}",
            **{name: value for name, value in ways.items() if name in ("attempts", "pause")},
        )
    return files.sha256(target)


def problem(path: Path, source: Mapping) -> str:
    """Return "" where a file is that source by its hash on file, or at least is Python, else what is wrong."""
    if source["sha256"]:
        return downloads.sha256_check(source["sha256"])(path)
    try:
        compile(path.read_bytes(), path.name, "exec")
    except (SyntaxError, ValueError) as error:
        return f"is not Python code ({str(error).splitlines()[0]})"
    return ""


def load(folder: Path, package: str) -> ModuleType:
    """Import a package from a checkpoint's ``code`` folder, in place of one that another checkpoint brought.

    Raises
    ------
    BadInput
        Where the folder does not hold it.
    """
    place = folder / package
    if not (place / "__init__.py").is_file():
        raise BadInput(
            f"{place} is missing: fetch the checkpoint again with remote_code: true, which also brings the modelling "
            "code named in models.*.code."
        )
    held = sys.modules.get(package)
    if held and Path(held.__file__).parent == place:
        return held
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    before = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    # a folder whose files are all declared gets no others
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        return importlib.import_module(package)
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = before
