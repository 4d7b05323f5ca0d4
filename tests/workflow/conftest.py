"""Throw-away checkouts in which the workflow is run for real."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from workflow.models import warm

TINY = "tests/workflow/tiny.yaml"


class Checkout:
    """A copy of the project's files, in which a test may change and break things."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def command(self, *arguments: str, overlay: str | None = None) -> list[str]:
        # --configfile takes all that follows it up to the next option
        options = ["--configfile", overlay] if overlay else []
        return [sys.executable, "-m", "snakemake", *options, "--cores", "2", *arguments]

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != warm.ADDRESS}

    def run(self, *arguments: str, overlay: str | None = TINY, **variables: str) -> subprocess.CompletedProcess:
        """Run snakemake; ``overlay`` is the --configfile, None for the default study."""
        return subprocess.run(
            self.command(*arguments, overlay=overlay),
            cwd=self.folder,
            env=self.environment() | variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def build(self, *arguments: str, overlay: str | None = TINY) -> Counter:
        """Run snakemake, which must succeed, and count the jobs of each rule."""
        done = self.run(*arguments, overlay=overlay)
        assert done.returncode == 0, done.stdout + done.stderr
        return jobs(done)

    def planned(self, *arguments: str, overlay: str | None = TINY) -> Counter:
        """Count the jobs that a run would start."""
        return self.build("--dry-run", *arguments, overlay=overlay)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.path(name)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def copy(self, folder: Path) -> "Checkout":
        """Copy everything, results and run records included."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Checkout(folder)


def jobs(done: subprocess.CompletedProcess) -> Counter:
    """Count the jobs named in snakemake's output."""
    return Counter(re.findall(r"^(?:local)?rule (\w+):$", done.stdout + done.stderr, flags=re.MULTILINE))


def fresh(repository: Path, folder: Path) -> Checkout:
    """Copy the files that git knows or would add, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (repository / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, folder / name)
    return Checkout(folder)


@pytest.fixture(scope="session")
def tiny_built(repository, tmp_path_factory) -> Checkout:
    """A checkout in which the tiny study was built once; tests copy it before they change anything."""
    checkout = fresh(repository, tmp_path_factory.mktemp("tiny") / "checkout")
    checkout.build()
    return checkout


@pytest.fixture
def tiny(tiny_built, tmp_path) -> Checkout:
    """A private copy of the built tiny study."""
    return tiny_built.copy(tmp_path / "checkout")
