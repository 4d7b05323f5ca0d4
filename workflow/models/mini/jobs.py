"""The two training jobs, importing what they need when they run, so that a warm process can run them."""

from pathlib import Path


def train_base(settings: dict, out: str) -> None:
    """See `workflow.models.mini.base.train_base`."""
    from workflow.models.mini import base

    base.train_base(settings, Path(out))


def train_checkpoint(name: str, settings: dict, base: str, out_folder: str) -> None:
    """See `workflow.models.mini.checkpoint.train_checkpoint`."""
    from workflow.models.mini import checkpoint

    checkpoint.train_checkpoint(name, settings, Path(base), Path(out_folder))
