"""Repositories on the Hugging Face hub at a pinned revision: what they hold, and fetching what a model needs.

huggingface_hub lists a repository and knows its addresses (HF_ENDPOINT, HF_TOKEN); the bytes are fetched by
`workflow.lib.downloads`, because huggingface_hub begins a file of several gigabytes anew when it was killed.
"""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, errors, hf_hub_url
from huggingface_hub.utils import build_hf_headers
from tqdm import tqdm

from workflow.lib import downloads, files
from workflow.lib.errors import BadInput
from workflow.models import own_code

SEAL = "checkpoint.json"
_REVISION = re.compile(r"[0-9a-f]{40}")
_TEXTS = {"merges.txt", "vocab.txt"}
_TRAINING = {"trainer_state.json", "training_args.json"}


@dataclass(frozen=True)
class Entry:
    """A file of a repository: path, bytes, and its SHA-256 (large files) or git object name (small ones)."""

    path: str
    size: int
    sha256: str = ""
    blob: str = ""

    def problem(self, path: Path) -> str:
        """Return "" where a file on disk is this one, else what is wrong."""
        if path.stat().st_size != self.size:
            return f"has {path.stat().st_size} bytes where {self.size} are expected"
        check = downloads.sha256_check(self.sha256) if self.sha256 else downloads.git_blob_check(self.blob)
        return check(path)


def listing(repository: str, revision: str, kind: str = "model", endpoint: str | None = None) -> list[Entry]:
    """Return the files of a repository at a revision, sorted by path; a busy hub is asked again for half a minute.

    Raises
    ------
    BadInput
        The revision is no full commit, is not there, needs a token, or the hub does not answer.
    """
    if not _REVISION.fullmatch(revision):
        raise BadInput(f"{repository}: revision {revision!r} is not 40 hex digits; pin a full commit.")
    try:
        found = HfApi(endpoint=endpoint).list_repo_tree(repository, recursive=True, revision=revision, repo_type=kind)
        entries = [entry for entry in found if getattr(entry, "size", None) is not None]
    except (errors.GatedRepoError, errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise BadInput(
            f"{repository} has no revision {revision} that may be read here ({type(error).__name__}): check model_id "
            "and revision, or set HF_TOKEN if the repository is protected."
        ) from None
    except errors.OfflineModeIsEnabled:
        raise BadInput(f"{repository}: HF_HUB_OFFLINE is set: unset it, or set offline to true.") from None
    except Exception as error:  # transport errors are of another library in each release of huggingface_hub
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"{repository} at revision {revision[:7]} cannot be listed ({reason}): run the same command again with a "
            "network, or set offline to true."
        ) from None
    held = [
        Entry(entry.path, entry.size, entry.lfs.sha256 if entry.lfs else "", "" if entry.lfs else entry.blob_id)
        for entry in entries
    ]
    return sorted(held, key=lambda entry: entry.path)


def needed(paths: Sequence[str], remote_code: bool) -> list[str]:
    """Return which files of a checkpoint repository a model is loaded from, sorted.

    Configuration, tokenizer and processor files; weights as safetensors, or as pytorch_model files only where there
    are no safetensors; Python files only where the configuration allows code of the checkpoint's own.
    """
    safe = any(path.endswith(".safetensors") and not _name(path).startswith("consolidated") for path in paths)
    kept = []
    for path in paths:
        name = _name(path)
        if any(part.startswith(".") for part in PurePosixPath(path).parts) or path == SEAL or name in _TRAINING:
            continue
        if name.endswith(".json"):
            wanted = not (safe and name.endswith(".bin.index.json"))
        elif name.endswith(".safetensors"):
            wanted = safe and not name.startswith("consolidated")
        elif name.endswith(".bin"):
            wanted = not safe and name.startswith("pytorch_model")
        else:
            wanted = name.endswith((".model", ".jinja")) or name in _TEXTS or (remote_code and name.endswith(".py"))
        if wanted:
            kept.append(path)
    return sorted(kept)


def _name(path: str) -> str:
    return PurePosixPath(path).name


def fetch_files(
    repository: str,
    revision: str,
    entries: Sequence[Entry],
    folder: Path,
    *,
    kind: str = "model",
    known: Mapping[str, str] | None = None,
    endpoint: str | None = None,
    attempts: int = 5,
    pause: float = 2.0,
) -> dict[str, str]:
    """Bring files of a repository into a folder and return path -> SHA-256.

    A file that is there and right is kept; the rest is downloaded, and a partial download is continued.

    Parameters
    ----------
    known : mapping, optional
        path -> SHA-256 on file in ``workflow/sources.csv``; the hub must state the same.
    """
    total = sum(entry.size for entry in entries)
    found = {}
    with tqdm(total=total, unit="B", unit_scale=True, desc=repository, mininterval=2) as bar:
        for entry in entries:
            target = folder / entry.path
            stated = (known or {}).get(entry.path)
            if stated and entry.sha256 and stated != entry.sha256:
                raise BadInput(
                    f"{repository}: the hub states SHA-256 {entry.sha256} for {entry.path} at revision {revision[:7]} "
                    f"where workflow/sources.csv has {stated}: do not use this copy."
                )
            if target.is_file() and not entry.problem(target):
                bar.update(entry.size)
            else:
                target.unlink(missing_ok=True)
                downloads.download(
                    hf_hub_url(repository, entry.path, revision=revision, repo_type=kind, endpoint=endpoint),
                    target,
                    size=entry.size,
                    check=entry.problem,
                    headers={key: str(value) for key, value in build_hf_headers().items()},
                    progress=bar.update,
                    opener=downloads.open_unmirrored,  # the hub has a switch of its own, HF_ENDPOINT
                    attempts=attempts,
                    pause=pause,
                    remedy=f"run the same command again, or put the file of revision {revision[:7]} at {target}",
                )
            found[entry.path] = entry.sha256 or files.sha256(target)
    return found


def held_files(folder: Path, remote_code: bool) -> list[str]:
    """Return the files in a folder that a model is loaded from."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return needed(paths, remote_code)


def incomplete(folder: Path, paths: Sequence[str]) -> str:
    """Return "" where the weights in a folder are whole by their own index and headers, else what is missing."""
    if "config.json" not in paths:
        return "config.json is missing"
    indices = [path for path in paths if path.endswith(".index.json")]
    for index in indices:
        for name in sorted(set(files.read_json(folder / index)["weight_map"].values())):
            if name not in paths:
                return f"{name}, which {index} names, is missing"
    weights = [path for path in paths if path.endswith((".safetensors", ".bin"))]
    if not weights:
        return "no weights (*.safetensors) are there"
    for path in weights:
        problem = _cut_weights(folder / path) if path.endswith(".safetensors") else ""
        if problem:
            return f"{path} {problem}"
    return ""


def _cut_weights(path: Path) -> str:
    with open(path, "rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        try:
            tensors = json.loads(stream.read(length)) if 0 < length < 1 << 30 else None
        except ValueError:
            tensors = None
    if not isinstance(tensors, dict):
        return "is not a safetensors file"
    ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
    whole = 8 + length + max(ends, default=0)
    found = path.stat().st_size
    return "" if found == whole else f"has {found} bytes where its header declares {whole}"


def fetch_checkpoint(
    model: str,
    model_id: str,
    revision: str,
    folder: str | Path,
    *,
    remote_code: bool = False,
    code_files: Mapping[str, Mapping] | None = None,
    known: Mapping[str, str] | None = None,
    local_folder: str = "",
    offline: bool = False,
    **ways: object,
) -> None:
    """Bring a checkpoint to a folder, verify it, and describe it at last by ``checkpoint.json``.

    A folder without that file is unfinished; the same call continues it. Offline nothing is asked: files that lie
    in the folder (or in ``local_folder``/MODEL_ID) are taken if they are whole by their own index and headers and
    fit the hashes on file.

    Parameters
    ----------
    remote_code : bool
        Whether code that comes with the model is fetched: Python files of the repository, and ``code_files``.
    code_files : mapping, optional
        path -> source of modelling code from another place (`workflow.lib.sources.code_files`); it goes to ``code/``.
        A model that needs such code is not fetched at all where code is not allowed.

    Raises
    ------
    BadInput
        Names what is missing or wrong, and where to put it.
    """
    if code_files and not remote_code:
        first = next(iter(code_files.values()))
        raise BadInput(
            f"model {model} runs modelling code of its authors: set models.{model}.remote_code to true if you trust "
            f"revision {first['revision']} of it ({first['url']} and the files beside it)."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SEAL).unlink(missing_ok=True)
    copy = Path(local_folder, model_id) if local_folder and Path(local_folder, model_id).is_dir() else None
    code = {f"{own_code.FOLDER}/{path}": source for path, source in (code_files or {}).items()}
    if offline:
        for path in held_files(copy, remote_code) if copy else []:
            _link_at(folder / path, copy / path)
        paths = held_files(folder, remote_code)
        problem = incomplete(folder, paths)
        if problem:
            raise BadInput(
                f"{model}: {problem} in {folder}, and offline is true: put the files of {model_id} at revision "
                f"{revision} there (config, tokenizer, processor and weights), or set offline to false."
            )
        found = {path: files.sha256(folder / path) for path in paths}
        for path, source in code.items():
            problem = own_code.problem(folder / path, source) if path in found else "is missing"
            if problem:
                raise BadInput(
                    f"{folder / path} {problem}, and offline is true: put {source['url']} there, or set offline to "
                    "false."
                )
        for path, digest in (known or {}).items():
            if found.get(path) != digest:
                what = f"has SHA-256 {found[path]}" if path in found else "is missing"
                raise BadInput(
                    f"{folder / path} {what} where {digest} is on file for revision {revision[:7]} of {model_id}: put "
                    "the file of that revision there."
                )
    else:
        entries = listing(model_id, revision, endpoint=ways.get("endpoint"))
        chosen = set(needed([entry.path for entry in entries], remote_code))
        wanted = [entry for entry in entries if entry.path in chosen]
        for entry in wanted if copy else []:
            if (copy / entry.path).is_file():
                _link_at(folder / entry.path, copy / entry.path)
        found = fetch_files(model_id, revision, wanted, folder, known=known, **ways)
        problem = incomplete(folder, sorted(found))
        if problem:
            raise BadInput(f"{model_id} at revision {revision[:7]} is no whole checkpoint: {problem}; pin another one.")
        for path, source in code.items():
            if copy and (copy / path).is_file():
                (folder / path).unlink(missing_ok=True)
                _link_at(folder / path, copy / path)
            found[path] = own_code.fetch(folder / path, source, **ways)
    manifest = {"model": model, "model_id": model_id, "revision": revision, "files": dict(sorted(found.items()))}
    files.write_json(manifest, folder / SEAL)


def restore_checkpoint(model: str, manifest: str | Path, **settings: object) -> None:
    """Fetch a checkpoint again whose folder was deleted.

    Parameters
    ----------
    model : str
    manifest : path
        ``NAME.json``, kept beside the folder NAME: what shards were made from.
    settings
        As for `fetch_checkpoint`.

    Raises
    ------
    BadInput
        As there, and where other files came than the manifest names.
    """
    manifest = Path(manifest)
    seal = manifest.with_suffix("") / SEAL
    fetch_checkpoint(model, folder=seal.parent, **settings)
    kept, found = files.read_json(manifest)["files"], files.read_json(seal)["files"]
    other = sorted(path for path in kept.keys() | found.keys() if kept.get(path) != found.get(path))
    if other:
        seal.unlink()
        raise BadInput(
            f"{seal.parent} holds another {other[0]} than {manifest} names, from which shards were made: put that file "
            f"back, or delete {manifest} and run the same command again, which runs all shards of {model} again."
        )


def _link_at(target: Path, copy: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # a link whose file is gone
        target.symlink_to(copy.resolve())
