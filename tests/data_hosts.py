"""A local server that plays the hub and the data hosts, and misbehaves on request.

Paths are those of the real hosts: ``/api/models/ID/tree/REVISION``, ``/ID/resolve/REVISION/PATH``, and for other hosts
``/HOST/PATH`` (the layout of a mirror). What is wrong with an answer is looked up in `Hosts.faults` by path; each
fault is a list of ways, one used up by a request, so that a passing fault can be told from a lasting one.
"""

import contextlib
import csv
import hashlib
import http.server
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from workflow.lib import sources

HTML = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
LASTING = 99
"""A fault of that many answers outlives every number of tries."""


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hosts:
    """What the server serves.

    Attributes
    ----------
    repositories : dict
        (kind, id, revision) -> path -> content; kind "model" or "dataset".
    addresses : dict
        HOST/PATH -> content.
    faults : dict
        Request path -> list of ways: cut, html, busy, gone, refused, other, unsized, unsized-cut, no-range.
    asked : list
        (method, path, Range header) of every request.
    """

    def __init__(self) -> None:
        self.repositories: dict = {}
        self.addresses: dict = {}
        self.faults: dict[str, list[str]] = defaultdict(list)
        self.asked: list[tuple[str, str, str]] = []
        self.url = ""

    def content(self, path: str) -> bytes | None:
        for (kind, name, revision), held in self.repositories.items():
            where = ("datasets/" if kind == "dataset" else "") + name
            if path == f"/api/{kind}s/{name}/tree/{revision}":
                return json.dumps([self.entry(file, body) for file, body in held.items()]).encode()
            prefix = f"/{where}/resolve/{revision}/"
            if path.startswith(prefix):
                return held.get(path.removeprefix(prefix))
        return self.addresses.get(path.lstrip("/"))

    @staticmethod
    def entry(file: str, body: bytes) -> dict:
        entry = {"type": "file", "path": file, "size": len(body), "oid": git_blob(body)}
        if file.endswith((".safetensors", ".bin", ".parquet", ".model")):
            entry["lfs"] = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 134}
        return entry


def _handler(hosts: Hosts) -> type:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            asked = self.headers.get("Range", "")
            hosts.asked.append((self.command, path, asked))
            fault = hosts.faults[path].pop(0) if hosts.faults[path] else ""
            body = hosts.content(path)
            if body is None or fault == "gone":
                # the header by which the hub tells a missing revision from a missing file
                named = {"X-Error-Code": "RevisionNotFound"} if path.startswith("/api/") else {}
                return self.answer(404, b"no such file", headers=named)
            if fault in ("busy", "refused"):
                return self.answer(503 if fault == "busy" else 403, b"not now")
            if fault == "html":
                return self.answer(200, HTML)
            if fault == "other":
                body = body[:-1] + bytes([body[-1] ^ 1])
            start = int(asked[len("bytes=") : -1]) if asked and fault != "no-range" else 0
            if start >= len(body) and start:
                return self.answer(416, b"")
            headers = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
            rest = body[start:]
            sent = rest[: len(rest) // 2] if "cut" in fault else rest
            length = None if fault.startswith("unsized") else len(rest)
            return self.answer(206 if start else 200, sent, length, headers)

        def answer(self, status: int, body: bytes, length: int | None = -1, headers: dict | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            if length is not None:
                self.send_header("Content-Length", str(len(body) if length == -1 else length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def serving(hosts: Hosts) -> Iterator[Hosts]:
    """Serve on a free port of this machine while the block runs; ``hosts.url`` is the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(hosts))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hosts.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hosts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def describe_sources(table: Path, hosts: Hosts, model_id: str) -> None:
    """Give a checkout's table of sources the hashes of the stand-ins, and forget those of a real checkpoint's files."""
    with open(table, newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        body = hosts.addresses.get(row["url"].removeprefix("https://"))
        if body and row["name"].startswith("pope/"):
            row["bytes"] = str(len(body))
            row["sha256"] = hashlib.sha256(body).hexdigest()
    with open(table, "w", newline="") as stream:
        writer = csv.DictWriter(stream, sources.COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in rows if not row["name"].startswith(f"repository/{model_id}/"))
