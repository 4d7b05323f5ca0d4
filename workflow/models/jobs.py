"""Inference jobs as functions that import torch only where they run.

A script hands one of them to `workflow.models.warm.call`, so the script's own process stays small.
"""


def infer_shard(*arguments: object, **keywords: object) -> None:
    """See `workflow.models.shard.infer`."""
    from workflow.models import shard

    shard.infer(*arguments, **keywords)
