"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# the same examples in every run: a test that fails here fails everywhere
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout under test."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with real question files (``pope/``) and real released records (``released/``).

    The files are not part of the project. READOUT_AUDIT_DATA names the folder; without it the folder
    ``shared/data`` beside the checkout is tried, and the test is skipped where neither exists.
    """
    folder = Path(os.environ.get("READOUT_AUDIT_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "released").is_dir():
        # in CI a skip would hide that nothing was compared with the real records
        assert not os.environ.get("READOUT_AUDIT_REQUIRE_DATA"), f"real records are not at {folder}"
        pytest.skip(f"real records are not at {folder} (set READOUT_AUDIT_DATA)")
    return folder
