"""Files from outside: where they come from and the checks that they pass before anything reads them.

``workflow/sources.csv`` is the only place where an address stands.
"""

import csv
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workflow.lib import files
from workflow.lib.errors import BadInput

SOURCES_CSV = Path(__file__).resolve().parents[1] / "sources.csv"
COLUMNS = ("name", "version", "url", "revision", "sha256", "bytes", "licence", "note")
BLOCK = 1 << 20
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_TRANSIENT = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)
REPOSITORY = "repository/"
"""Names of repositories on the hub, and of single files in them, begin with this; the hub itself states sizes."""
CODE = "code/"
"""Names of files of modelling code begin with this, the repository and its revision."""
UNVERSIONED = "unversioned/"
"""Names of files whose origin has no revisions begin with this; nothing else may lack one."""
HOW_TO_SUPPLY = "supply the file from a local folder with --config released_folder=PATH"


@dataclass(frozen=True)
class Source:
    """One file at one revision.

    An empty ``sha256`` (and ``bytes`` None) means that the hash of the original is not on file: the reader of
    the file checks its structure instead.
    """

    name: str
    url: str
    revision: str
    sha256: str
    bytes: int | None

    @property
    def basename(self) -> str:
        """Name of the file without folders, the same as at its origin."""
        return PurePosixPath(self.name).name

    def identity(self) -> dict[str, str | int | None]:
        """Return the fields that decide which bytes are fetched, for use as job parameters."""
        return {
            "name": self.name,
            "url": self.url,
            "revision": self.revision,
            "sha256": self.sha256,
            "bytes": self.bytes,
        }


def load(path: str | Path = SOURCES_CSV) -> dict[str, Source]:
    """Read the table of sources and check every row.

    Returns
    -------
    dict
        Source by name, in the order of the file.

    Raises
    ------
    BadInput
        Wrong columns; names that are unsorted, repeated or leave their folder; a revision that is not 40 hex
        digits or is missing from the address; a hash that is neither empty nor 64 hex digits.
    """
    path = Path(path)
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise BadInput(f"{path} has columns {reader.fieldnames}; the header must be {','.join(COLUMNS)}.")
        rows = list(reader)
    names = [row["name"] for row in rows]
    found: dict[str, Source] = {}
    for number, row in enumerate(rows, 2):
        where = f"{path} line {number} ({row['name']})"
        if None in row or None in row.values():
            raise BadInput(f"{where} has not {len(COLUMNS)} cells: quote cells that hold commas.")
        if not _NAME.fullmatch(row["name"]) or row["name"] in found:
            raise BadInput(f"{where}: each name must be a relative path that occurs once.")
        versioned = not row["name"].startswith(UNVERSIONED)
        if versioned != bool(row["revision"]) or (versioned and not _REVISION.fullmatch(row["revision"])):
            raise BadInput(f"{where}: revision {row['revision']!r} is not 40 hex digits; pin a full commit.")
        if not row["url"].startswith("https://") or row["revision"] not in row["url"]:
            raise BadInput(f"{where}: the address must use https and contain the revision.")
        if PurePosixPath(row["url"]).name != PurePosixPath(row["name"]).name:
            raise BadInput(f"{where}: name and address must end in the same file name.")
        if bool(row["sha256"]) != bool(row["bytes"]) and (row["bytes"] or not row["name"].startswith(REPOSITORY)):
            raise BadInput(f"{where}: give both sha256 and bytes, or neither and the reason in the note.")
        if row["sha256"] and not (_SHA256.fullmatch(row["sha256"]) and row["bytes"].isdecimal() | (not row["bytes"])):
            raise BadInput(f"{where}: sha256 must be 64 lower-case hex digits and bytes a whole number.")
        if not row["sha256"] and not row["note"]:
            raise BadInput(f"{where}: a source without sha256 needs the reason in its note.")
        size = int(row["bytes"]) if row["bytes"] else None
        found[row["name"]] = Source(row["name"], row["url"], row["revision"], row["sha256"], size)
    if names != sorted(names):
        raise BadInput(f"{path} is not sorted by name: sort its rows.")
    return found


def place_of(known: Mapping[str, Source], name: str) -> Source:
    """Return a source by name; BadInput where the table has none."""
    if name not in known:
        raise BadInput(
            f"workflow/sources.csv has no row {name}: add one, or correct the revision in the configuration."
        )
    return known[name]


def known_files(known: Mapping[str, Source], model: Mapping) -> dict[str, str]:
    """Return path -> SHA-256 of the files of a checkpoint whose hash is on file; model has model_id and revision."""
    prefix = f"{REPOSITORY}{model['model_id']}/{model['revision']}/"
    return {
        name.removeprefix(prefix): source.sha256
        for name, source in known.items()
        if name.startswith(prefix) and source.sha256
    }


def code_files(known: Mapping[str, Source], code: Mapping[str, str] | None) -> dict[str, dict]:
    """Return path -> source of the modelling code that a model brings from elsewhere.

    Parameters
    ----------
    code : mapping or None
        ``repository`` and ``revision``, as in ``models.*.code``; None where the checkpoint needs none.

    Raises
    ------
    BadInput
        Where the table has no file of that revision.
    """
    if not code:
        return {}
    prefix = f"{CODE}{code['repository']}/{code['revision']}/"
    found = {name.removeprefix(prefix): held.identity() for name, held in known.items() if name.startswith(prefix)}
    if not found:
        raise BadInput(
            f"workflow/sources.csv has no file of {code['repository']} at revision {code['revision']}: add its files, "
            "or correct models.*.code in the configuration."
        )
    return found


def image_origin(known: Mapping[str, Source], way: str) -> dict[str, str]:
    """Return where images come from: url, and for the hub also repository and revision.

    Parameters
    ----------
    way : str
        "coco", "coco_archive" or "hub".
    """
    if way == "hub":
        prefix = f"{REPOSITORY}datasets/lmms-lab/POPE/"
        source = next(source for name, source in known.items() if name.startswith(prefix))
        return {"url": source.url, "repository": "lmms-lab/POPE", "revision": source.revision}
    name = {"coco": "coco/val2014", "coco_archive": "coco/val2014.zip"}[way]
    return {"url": place_of(known, f"{UNVERSIONED}{name}").url}


def candidates(source: Source, folder: str | Path) -> list[Path]:
    """Return where a local folder is searched for a file, in this order.

    1. FOLDER/basename; 2. FOLDER/released/basename; 3. FOLDER/pope/REVISION/basename;
    4. FOLDER/../pope/REVISION/basename.
    """
    folder = Path(folder)
    pope = Path("pope", source.revision, source.basename)
    return [
        folder / source.basename,
        folder / "released" / source.basename,
        folder / pope,
        folder.parent / pope,
    ]


def fetch(
    source: Source,
    destination: str | os.PathLike,
    local_folder: str | Path | None = None,
    opener: Callable = urllib.request.urlopen,
    timeout: float = 60.0,
    attempts: int = 3,
    pause: float = 2.0,
) -> None:
    """Bring one file to ``destination``, from a local folder where one is given, else over HTTP.

    Size, hash and, for ``.json``, syntax are checked before the file gets its name; whatever fails, nothing
    is left behind. In a local folder the first of `candidates` that passes is taken, so that two revisions of
    one file name can stand there; the network is not asked where a folder is given.

    Parameters
    ----------
    source : Source
        What to fetch.
    destination : path
        Name of the new file.
    local_folder : path, optional
        Folder with copies of the files; empty for none.
    opener : callable
        ``opener(url, timeout=seconds)`` gives a response with ``read`` and ``headers``.
    timeout : float
        Seconds that a silent server is waited for.
    attempts, pause : int, float
        How often a download is tried, with ``pause`` seconds after the first failure and twice as many after
        each further one. A name that cannot be resolved (no network) and a file that is refused by its hash are
        not tried again.

    Raises
    ------
    BadInput
        The file is missing, cut, of another revision, an HTML page, or the network does not answer.
    """
    if local_folder:
        _copy(source, Path(local_folder), destination)
        return
    for attempt in range(attempts):
        try:
            with (
                opener(source.url, timeout=timeout) as response,
                files.write_atomically(destination) as temporary,
            ):
                _download(source, response, temporary)
                verify(source, temporary, "the answer of the server", f"try again or {HOW_TO_SUPPLY}")
            return
        except _TRANSIENT as error:
            last = attempt == attempts - 1
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if last or error.code not in _BUSY:
                    raise BadInput(
                        f"{source.name}: the server answered {error.code} for {source.url}; try again later or "
                        f"{HOW_TO_SUPPLY}."
                    ) from None
            reason = getattr(error, "reason", None) or error
            if last or isinstance(reason, socket.gaierror):
                raise BadInput(
                    f"{source.name} cannot be fetched from {source.url} ({reason}): run the same command again with "
                    f"a network, or {HOW_TO_SUPPLY}."
                ) from None
        time.sleep(pause * 2**attempt)


def _copy(source: Source, folder: Path, destination: str | os.PathLike) -> None:
    if not folder.is_dir():
        raise BadInput(f"released_folder {folder} is not a folder: give the path of the one with {source.basename}.")
    first: BadInput | None = None
    for candidate in candidates(source, folder):
        if not candidate.is_file():
            continue
        try:
            with files.write_atomically(destination) as temporary:
                shutil.copyfile(candidate, temporary)
                verify(source, temporary, str(candidate), "put an unchanged copy there")
            return
        except BadInput as problem:
            first = first or problem
    if first:
        raise first
    searched = ", ".join(str(path) for path in candidates(source, folder))
    raise BadInput(
        f"{source.basename} is not in released_folder (searched {searched}): put the file of revision "
        f"{source.revision[:7]} there or leave released_folder empty to fetch it."
    )


def _download(source: Source, response: object, path: Path) -> None:
    declared = response.headers.get("Content-Length")
    received = 0
    with open(path, "wb") as stream:
        while block := response.read(BLOCK):
            received += len(block)
            stream.write(block)
            if source.bytes is not None and received > source.bytes:
                break
    if declared is not None and received < int(declared):
        raise ConnectionError(f"the body was cut after {received} of {declared} bytes")


def verify(source: Source, path: Path, origin: str, remedy: str) -> None:
    """Check size, hash and, for ``.json``, syntax; ``origin`` and ``remedy`` go into the message."""
    if source.basename.endswith(".json"):
        problem = _json_problem(path)
        if problem:
            raise BadInput(f"{source.name}: {origin} {problem}: {remedy}.")
    at = f"at revision {source.revision[:7]}"
    size = path.stat().st_size
    if source.bytes is not None and size != source.bytes:
        # a download stops at the first block too many, so the size of a longer body is not known
        found = f"more than {source.bytes}" if size > source.bytes else str(size)
        raise BadInput(f"{source.name}: {origin} has {found} bytes where {source.bytes} are expected {at}: {remedy}.")
    digest = files.sha256(path)
    if source.sha256 and digest != source.sha256:
        raise BadInput(
            f"{source.name}: {origin} has SHA-256 {digest} where {source.sha256} is expected {at}: {remedy}."
        )


def _json_problem(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", errors="replace")
    if text.lstrip("\ufeff \t\r\n")[:1] == "<":
        return "is an HTML page and not JSON"
    try:
        json.loads(text)
    except ValueError:
        try:
            lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            lines = []
        return "" if lines else "is neither JSON nor JSON lines"
    return ""
