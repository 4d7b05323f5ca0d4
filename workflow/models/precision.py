"""Number types and quantisation, refused where the machine cannot do them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import transformers

from workflow.lib import environments
from workflow.lib.errors import BadInput
from workflow.models import nf4

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Precision:
    """How a checkpoint is held and run.

    Attributes
    ----------
    dtype : str
        float32, float16 or bfloat16; with NF4 the type of the computation.
    quantisation : str
        "none", or "nf4" for 4-bit NormalFloat as the papers ran it (`workflow.models.nf4`).
    device : str
        "cpu" or "cuda".
    attention : str
        Attention kernel by transformers' name: "sdpa" or "eager".
    """

    dtype: str = "float32"
    quantisation: str = "none"
    device: str = "cpu"
    attention: str = "sdpa"

    def check(self) -> None:
        """Refuse what this machine cannot do: a request is never silently run in another precision."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise BadInput(
                "run.device is cuda but this machine has no usable CUDA device: set run.device to cpu or run the "
                "shard where there is one."
            )
        if self.quantisation == "nf4":
            if self.device == "cpu" and environments.is_older(transformers.__version__):
                raise BadInput(
                    f"run.quantisation is nf4 but transformers {transformers.__version__}, which is installed here, "
                    "quantises on CUDA devices only: set run.device to cuda where there is one, or run.quantisation to "
                    "none."
                )
            nf4.check(self.device, DTYPES[self.dtype])

    def load_arguments(self) -> dict[str, object]:
        """Return the keyword arguments for ``from_pretrained``."""
        name = "torch_dtype" if environments.is_older(transformers.__version__) else "dtype"
        arguments: dict[str, object] = {name: DTYPES[self.dtype], "attn_implementation": self.attention}
        if self.quantisation == "nf4":
            arguments["quantization_config"] = nf4.settings(DTYPES[self.dtype])
            arguments["device_map"] = self.device
        return arguments

    @contextmanager
    def shortage_named(self, doing: str, remedy: str = "") -> Iterator[None]:
        """Turn running out of memory into a sentence that says what to lower.

        Parameters
        ----------
        doing : str
            What was going on, as it follows "ran out of memory".
        remedy : str, optional
            A setting that helps before a smaller representation of the model does.
        """
        try:
            yield
        except RuntimeError as error:
            # the CPU's allocator has no error class of its own
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            smaller = (
                "set run.dtype to float16 or run.quantisation to nf4"
                if self.dtype == "float32" and self.quantisation == "none"
                else "set run.quantisation to nf4"
                if self.quantisation == "none"
                else "end what else uses the device, or take a larger one"
            )
            raise BadInput(
                f"{self.device} ran out of memory {doing}: {remedy + ', or ' if remedy else ''}{smaller}."
            ) from None

    def placed(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model on its device; a quantised model was placed while it was loaded."""
        return model if self.quantisation == "nf4" else model.to(self.device)
