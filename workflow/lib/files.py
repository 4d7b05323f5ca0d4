"""Files that are either whole or absent."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from workflow.lib.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def write_atomically(path: str | os.PathLike) -> Iterator[Path]:
    """Give a temporary name beside ``path`` and rename it once the block has ended well.

    A reader never sees a partial file: the temporary name starts with a dot and ends in ``.part``, so that
    no rule and no glob over results matches it. On any exception it is removed and ``path`` stays as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        # mkstemp makes files private; results are meant to be read by others
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file as 64 lower-case hex digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_text(text: str, path: str | os.PathLike) -> None:
    """Write ``text`` as UTF-8 with the line ends it has."""
    with write_atomically(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(value: object, path: str | os.PathLike) -> None:
    """Write ``value`` as indented JSON with sorted keys; NaN and infinity are refused."""
    write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n", path)


def read_json(path: str | os.PathLike) -> object:
    """Return the value in a JSON file; BadInput where it is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path} is not JSON ({error}): replace it with an intact copy of the file.") from None


def write_csv(frame: "pd.DataFrame", path: str | os.PathLike) -> None:
    """Write a table as CSV: full precision, ``\\n`` line ends, booleans as true and false.

    Missing values are refused, because a degenerate case has a label in this project and never a blank or a
    NaN; write an empty string where a cell has no meaning.
    """
    if frame.isna().to_numpy().any():
        row, column = next(zip(*frame.isna().to_numpy().nonzero(), strict=True))
        raise ValueError(f"{path}: row {row} of column {frame.columns[column]!r} is missing; label it instead")
    booleans = {name: frame[name].map({True: "true", False: "false"}) for name in frame if frame[name].dtype == bool}
    with write_atomically(path) as temporary:
        frame.assign(**booleans).to_csv(temporary, index=False, lineterminator="\n")


def read_csv(path: str | os.PathLike) -> "pd.DataFrame":
    """Return a table written by `write_csv`; empty cells stay empty strings, true and false become booleans."""
    # importing pandas takes longer than most jobs do, and most jobs read and write no CSV
    import pandas as pd

    try:
        frame = pd.read_csv(path, keep_default_na=False, encoding="utf-8")
    except (ValueError, OSError) as error:
        raise BadInput(f"{path} cannot be read as a CSV table ({error}): rebuild it.") from None
    return frame
