"""Borrow a process that has imported torch already.

Importing torch and transformers takes several seconds, more than a mini shard does. While a workflow runs on
one machine it keeps one idle process that has imported them; a job asks it for a copy of itself (a fork), and
the function runs in that copy, with the job's standard streams. Nothing of this project is imported before the
fork, so that edited code is never stale, and nothing else is shared between jobs. Where no such process is at
hand (a cluster, another platform, another environment, a job run alone) `call` runs the function in place: the result
is the same.
"""

import contextlib
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from workflow.lib.errors import BadInput

ADDRESS = "READOUT_AUDIT_WARM_PROCESS"
"""Environment variable with the socket of the idle process."""
INTERPRETER = "READOUT_AUDIT_WARM_INTERPRETER"
"""Environment variable with the place of its Python: a job in another environment must not borrow it."""
PRELOADED = (
    "torch",
    "transformers.models.llava.modeling_llava",
    "transformers.models.llava.processing_llava",
    "transformers.generation.utils",
    "transformers.models.clip.image_processing_pil_clip",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.clip.modeling_clip",
    "PIL.PngImagePlugin",
    "pyarrow.parquet",
)


def start() -> subprocess.Popen | None:
    """Start the idle process for the jobs that this process will start; it ends when this process does.

    Returns None, and does nothing, where forking after an import is not safe (only Linux is known to be).
    It imports nothing before the first job asks, so a run without models pays nothing.
    """
    if sys.platform != "linux" or os.environ.get(ADDRESS):
        return None
    address = str(Path(tempfile.mkdtemp(prefix="readout-audit-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "workflow.models.warm", address, str(os.getpid())],
        cwd=Path(__file__).resolve().parents[2],
        stdin=subprocess.DEVNULL,
    )
    os.environ |= {ADDRESS: address, INTERPRETER: sys.prefix}
    return process


def stop(process: subprocess.Popen | None) -> None:
    """End the idle process."""
    address = os.environ.pop(ADDRESS, None) if process else None
    if process:
        os.environ.pop(INTERPRETER, None)
        process.terminate()
        process.wait()
    if address:
        Path(address).unlink(missing_ok=True)
        Path(address).parent.rmdir()


def call(function: Callable, /, *arguments: object, **keywords: object) -> None:
    """Run a module-level function of this project, in a copy of the idle process where there is one.

    Raises
    ------
    BadInput
        As the function raises it.
    RuntimeError
        With the traceback of any other exception, or where the copy died.
    """
    address = os.environ.get(ADDRESS) if os.environ.get(INTERPRETER) == sys.prefix else None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address or "")
    except OSError:
        function(*arguments, **keywords)
        return
    with connection:
        request = pickle.dumps((function.__module__, function.__qualname__, arguments, keywords, os.getcwd()))
        socket.send_fds(connection, [len(request).to_bytes(8, "big")], [1, 2])
        connection.sendall(request)
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    if not reply:
        raise RuntimeError("the process that ran this job ended without an answer; it may have been out of memory")
    kind, text = pickle.loads(reply)
    if kind == "bad input":
        raise BadInput(text)
    if kind == "error":
        raise RuntimeError(text)


def _serve(address: str, parent: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies are not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the jobs, and with them what they asked for
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        while True:
            connection, _ = server.accept()
            for name in PRELOADED:
                # not every version of transformers has all of them
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            if os.fork() == 0:
                server.close()
                _run(connection)
            connection.close()


def _end_with(parent: int) -> None:
    # an orphan is given to another parent; polling also works where a death signal is not to be had
    while os.getppid() == parent:
        threading.Event().wait(0.5)
    os._exit(0)


def _run(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(connection, 8, 2)
    for number, stream in zip((1, 2), streams, strict=True):
        os.dup2(stream, number)
    rest = int.from_bytes(head, "big")
    request = b""
    while len(request) < rest:
        request += connection.recv(rest - len(request))
    module, name, arguments, keywords, folder = pickle.loads(request)
    threading.Thread(target=_end_without, args=(connection,), daemon=True).start()
    os.chdir(folder)
    try:
        getattr(importlib.import_module(module), name)(*arguments, **keywords)
        reply = ("done", "")
    except BadInput as problem:
        reply = ("bad input", str(problem))
    except BaseException:
        reply = ("error", traceback.format_exc())
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(pickle.dumps(reply))
    connection.shutdown(socket.SHUT_WR)
    os._exit(0)


def _end_without(connection: socket.socket) -> None:
    # the job was killed: what it asked for must end too
    if not connection.recv(1):
        os._exit(1)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
