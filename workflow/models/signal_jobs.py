"""The jobs that measure signals, importing what they need when they run, so that a warm process can run them.

They reach into the decoder by ways that transformers has from version 5 on.
"""

from importlib import metadata

from workflow.lib import environments


def infer_signals(*arguments: str, **settings: object) -> None:
    """See `workflow.models.signals.infer`."""
    environments.need_current("the pass that measures signals", metadata.version("transformers"))
    from workflow.models import signals

    signals.infer(*arguments, **settings)


def infer_clip(*arguments: str, **settings: object) -> None:
    """See `workflow.models.clip.infer`."""
    environments.need_current("the measurement of CLIP similarities", metadata.version("transformers"))
    from workflow.models import clip

    clip.infer(*arguments, **settings)


def infer_noise(*arguments: str, **settings: object) -> None:
    """See `workflow.models.noise.infer`."""
    environments.need_current("the second pass on noise", metadata.version("transformers"))
    from workflow.models import noise

    noise.infer(*arguments, **settings)


def train_clip(name: str, settings: dict, base: str, out_folder: str) -> None:
    """See `workflow.models.mini.clips.train_clip`."""
    from pathlib import Path

    from workflow.models.mini import clips

    clips.train_clip(name, settings, Path(base), Path(out_folder))
