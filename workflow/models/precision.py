"""Number types and quantisation, refused where the machine cannot do them."""

import importlib.util
from dataclasses import dataclass

import torch
import transformers

from workflow.lib import environments
from workflow.lib.errors import BadInput

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Precision:
    """How a checkpoint is held and run.

    Attributes
    ----------
    dtype : str
        float32, float16 or bfloat16; with NF4 the type of the computation.
    quantisation : str
        "none", or "nf4" for 4-bit NormalFloat without double quantisation, as the first paper ran.
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
        if self.quantisation == "nf4" and importlib.util.find_spec("bitsandbytes") is None:
            raise BadInput(
                "run.quantisation is nf4 but bitsandbytes is not installed here: install it, or set run.quantisation "
                "to none, which is another experiment and is recorded as such."
            )
        older = environments.is_older(transformers.__version__)
        if self.quantisation == "nf4" and self.device == "cpu" and older:
            raise BadInput(
                f"run.quantisation is nf4 but transformers {transformers.__version__}, which is installed here, "
                "quantises on CUDA devices only: set run.device to cuda where there is one, or run.quantisation to "
                "none."
            )

    def load_arguments(self, unquantised: tuple[str, ...]) -> dict[str, object]:
        """Return the keyword arguments for ``from_pretrained``.

        Parameters
        ----------
        unquantised : tuple of str
            Module names kept out of quantisation, in transformers 5 full dotted ones: there short names are
            silently ignored. A list replaces the default, so the output layer must be named too.
        """
        name = "torch_dtype" if environments.is_older(transformers.__version__) else "dtype"
        arguments: dict[str, object] = {name: DTYPES[self.dtype], "attn_implementation": self.attention}
        if self.quantisation == "nf4":
            from transformers import BitsAndBytesConfig

            arguments["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=False,
                bnb_4bit_compute_dtype=DTYPES[self.dtype],
                llm_int8_skip_modules=list(unquantised),
            )
            arguments["device_map"] = self.device
        return arguments

    def placed(self, model: torch.nn.Module) -> torch.nn.Module:
        """Return the model on its device; a quantised model was placed while it was loaded."""
        return model if self.quantisation == "nf4" else model.to(self.device)
