"""Files over HTTP that may be large: continued after a cut, checked before they get their name.

A partial file stays beside its destination as ``.NAME.part``; the next try, also of another process, asks the
server for the rest (HTTP Range) and starts again from the first byte where the server does not offer that.
"""

import hashlib
import http.client
import os
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from workflow.lib import files
from workflow.lib.errors import BadInput

BLOCK = 1 << 20
MIRROR = "READOUT_AUDIT_MIRROR"
"""Environment variable with the address of a mirror that serves ``https://HOST/PATH`` at ``MIRROR/HOST/PATH``."""
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_TRANSIENT = (urllib.error.URLError, TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException)


def address(url: str) -> str:
    """Return the address that is really asked: the same, or its place on the mirror where one is named."""
    mirror = os.environ.get(MIRROR, "")
    return f"{mirror.rstrip('/')}/{url.split('://', 1)[1]}" if mirror else url


def open_address(url: str, timeout: float, headers: Mapping[str, str] | None = None) -> http.client.HTTPResponse:
    """Open an address, or its place on the mirror where one is named."""
    return open_unmirrored(address(url), timeout, headers)


def open_unmirrored(url: str, timeout: float, headers: Mapping[str, str] | None = None) -> http.client.HTTPResponse:
    """Open an address; ``Authorization`` stays with the first host where the server sends us on."""
    request = urllib.request.Request(url)
    for name, value in (headers or {}).items():
        (request.add_unredirected_header if name == "Authorization" else request.add_header)(name, value)
    return urllib.request.urlopen(request, timeout=timeout)


def part_of(destination: str | os.PathLike) -> Path:
    """Return where the partial file of a destination lies."""
    destination = Path(destination)
    return destination.with_name(f".{destination.name}.part")


def sha256_check(expected: str) -> Callable[[Path], str]:
    """Return a check for `download`: "" where the SHA-256 is the expected one, else what is wrong."""

    def check(path: Path) -> str:
        found = files.sha256(path)
        return "" if found == expected else f"has SHA-256 {found} where {expected} is expected"

    return check


def git_blob_check(expected: str) -> Callable[[Path], str]:
    """Return a check for `download` by the name that git gives a file's content (SHA-1 over size and bytes)."""

    def check(path: Path) -> str:
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
        with open(path, "rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
        found = digest.hexdigest()
        return "" if found == expected else f"has the git object name {found} where {expected} is expected"

    return check


def download(
    url: str,
    destination: str | os.PathLike,
    *,
    remedy: str,
    size: int | None = None,
    check: Callable[[Path], str] = lambda path: "",
    headers: Mapping[str, str] | None = None,
    progress: Callable[[int], object] = lambda count: None,
    opener: Callable = open_address,
    timeout: float = 60.0,
    attempts: int = 5,
    pause: float = 2.0,
) -> None:
    """Bring one file to ``destination``, continuing what an earlier try left.

    Parameters
    ----------
    url : str
        What to fetch.
    destination : path
        Name of the new file; it appears only after size and ``check`` are satisfied.
    remedy : str
        End of every message: what to do instead.
    size : int, optional
        Bytes of the whole file, where known.
    check : callable
        ``check(path)`` returns "" or what is wrong with the content. A file that was put together from two tries
        and fails is fetched again from its first byte; one that came in one piece is refused.
    headers : mapping, optional
        Further request headers.
    progress : callable
        Called with the number of new bytes; negative where the server made us start again.
    opener : callable
        ``opener(url, timeout, headers)`` gives a response.
    timeout : float
        Seconds that a silent server is waited for.
    attempts, pause : int, float
        Tries in a row that bring nothing new, with ``pause`` seconds after the first and twice as many after each
        further one.

    Raises
    ------
    BadInput
        The server refuses or does not answer, the disk is too small, or the content is not what is expected.
    """
    destination, part = Path(destination), part_of(destination)
    part.parent.mkdir(parents=True, exist_ok=True)
    name, failures, furthest = destination.name, 0, _size(part)
    progress(furthest)
    while True:
        start = _size(part)
        if size is not None and start > size:
            part.unlink()
            progress(-start)
            start = 0
        _check_space(part, name, size, start)
        try:
            one_piece = start != size and _fetch(url, part, start, size, headers, progress, opener, timeout)
            problem = _content_problem(part, size, check)
            if not problem:
                os.replace(part, destination)
                return
            progress(-_size(part))
            part.unlink()
            # what was put together from two tries is fetched once more from the first byte
            failures, furthest = failures + 1, 0
            if one_piece or failures >= attempts:
                raise BadInput(f"{name}: the answer of {url} {problem}: {remedy}.")
            continue
        except _TRANSIENT as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
                if error.code == 416:  # the part is longer than the file
                    progress(-_size(part))
                    part.unlink(missing_ok=True)
                elif error.code not in _BUSY:
                    token = "; a protected repository needs HF_TOKEN in the environment"
                    why = token if error.code in (401, 403) else ""
                    raise BadInput(f"{name}: the server answered {error.code} for {url}{why}: {remedy}.") from None
            reason = getattr(error, "reason", None) or error
            held = _size(part)
            failures = 1 if held > furthest else failures + 1
            furthest = max(furthest, held)
            if failures >= attempts or isinstance(reason, socket.gaierror):
                kept = f"; {held} bytes are kept and the same command continues from there" if held else ""
                raise BadInput(f"{name} cannot be fetched from {url} ({reason}){kept}: {remedy}.") from None
        time.sleep(pause * 2 ** (failures - 1))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_space(part: Path, name: str, size: int | None, start: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if size is not None and free < size - start:
        raise BadInput(
            f"{name} needs {(size - start) / 1e9:.1f} GB more but {free / 1e9:.1f} GB are free in {part.parent}: make "
            "room, or put results on another disk with --directory."
        )


def _fetch(
    url: str,
    part: Path,
    start: int,
    size: int | None,
    headers: Mapping[str, str] | None,
    progress: Callable[[int], object],
    opener: Callable,
    timeout: float,
) -> bool:
    """Append to the partial file, or begin it anew; return whether all of it came with this answer."""
    # compressed answers would be cut and counted in other bytes than the file's
    asked = {"Accept-Encoding": "identity", **(headers or {})}
    if start:
        asked["Range"] = f"bytes={start}-"
    with opener(url, timeout, asked) as response:
        continued = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if start and not continued:
            progress(-start)
            start = 0
        length = response.headers.get("Content-Length")
        held = start
        whole = start + int(length) if length is not None else size
        with open(part, "ab" if continued else "wb") as stream:
            while block := response.read(BLOCK):
                stream.write(block)
                held += len(block)
                progress(len(block))
                if size is not None and held > size:
                    break
    if whole is not None and held < whole:
        raise ConnectionError(f"the body was cut after {held} of {whole} bytes")
    return not start


def _content_problem(path: Path, size: int | None, check: Callable[[Path], str]) -> str:
    with open(path, "rb") as stream:
        head = stream.read(512).lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "is an HTML page"
    found = path.stat().st_size
    if size is not None and found != size:
        # a download stops at the first block too many, so the size of a longer body is not known
        return f"has {f'more than {size}' if found > size else found} bytes where {size} are expected"
    return check(path)
