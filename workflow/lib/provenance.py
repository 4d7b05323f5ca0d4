"""Digests of computation: what a result depends on beside its inputs and parameters.

Snakemake's own code trigger compares time stamps of scripts and does not see imported modules. A rule here
carries a digest of its script and of every module of this project that the script reaches, taken from their
syntax trees: a comment, a docstring or a clone changes nothing, a changed computation changes its users.
"""

import ast
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from workflow.lib.errors import BadInput

PACKAGE = "workflow"


def code_digest(root: Path, script: str, *modules: str) -> str:
    """Return the digest of a script, its imports within the project, and further modules.

    Parameters
    ----------
    root : Path
        The checkout, parent of ``workflow/``.
    script : str
        Name of the file in ``workflow/scripts`` without its ending.
    modules : str
        Dotted names of modules that the script loads by name at run time, such as the adapter of one model
        family; so a change in one adapter leaves the shards of the other families alone.

    Returns
    -------
    str
        16 hex digits of a SHA-256 over module names and syntax trees.
    """
    pending = [f"{PACKAGE}.scripts.{script}", *modules]
    seen: dict[str, str] = {}
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        path = module_path(root, name)
        if path is None:
            raise FileNotFoundError(f"module {name} is not in {root / PACKAGE}")
        seen[name], imports = _parsed(path)
        pending.extend(found for found in imports if module_path(root, found))
    text = "\n".join(f"{name} {seen[name]}" for name in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def module_path(root: Path, name: str) -> Path | None:
    """Return the file of a module of the project, or None where the name is no module of it."""
    if name.split(".")[0] != PACKAGE:
        return None
    base = root.joinpath(*name.split("."))
    for candidate in (base.with_suffix(".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def imports_of(path: Path) -> tuple[str, ...]:
    """Return the dotted names that a file imports, anywhere in it, sorted.

    ``from a import b`` gives both ``a`` and ``a.b``, because only the file system tells whether b is a module.
    """
    return _parsed(path)[1]


def pins(lock: Path, names: Sequence[str]) -> list[str]:
    """Return the lines ``name==version`` of a lock file for the given packages, in the given order.

    Raises
    ------
    BadInput
        Where the lock does not pin one of them.
    """
    found = {line.split("==")[0].lower(): line for line in lock.read_text(encoding="utf-8").split() if "==" in line}
    for name in names:
        if name not in found:
            raise BadInput(f"{lock} does not pin {name}: make the lock again.")
    return [found[name] for name in names]


def _parsed(path: Path) -> tuple[str, tuple[str, ...]]:
    status = path.stat()
    return _parse(path, status.st_mtime_ns, status.st_size)


@functools.cache
def _parse(path: Path, _mtime: int, _size: int) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(path.read_bytes(), filename=str(path))
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports.add(node.module)
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(sorted(imports))
