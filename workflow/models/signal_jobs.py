"""The jobs that measure signals, importing what they need when they run, so that a warm process can run them."""


def infer_signals(*arguments: str, **settings: object) -> None:
    """See `workflow.models.signals.infer`."""
    from workflow.models import signals

    signals.infer(*arguments, **settings)


def infer_clip(*arguments: str, **settings: object) -> None:
    """See `workflow.models.clip.infer`."""
    from workflow.models import clip

    clip.infer(*arguments, **settings)


def infer_noise(*arguments: str, **settings: object) -> None:
    """See `workflow.models.noise.infer`."""
    from workflow.models import noise

    noise.infer(*arguments, **settings)


def train_clip(name: str, settings: dict, base: str, out_folder: str) -> None:
    """See `workflow.models.mini.clips.train_clip`."""
    from pathlib import Path

    from workflow.models.mini import clips

    clips.train_clip(name, settings, Path(base), Path(out_folder))
