"""4-bit NormalFloat through bitsandbytes, with the settings of the papers' runs.

The released code asks for NF4 with float16 arithmetic and names no layer to leave out. transformers (4.40.1, 4.44.2
and 4.45.2, which ran; 5.24 too) then quantises every linear layer but the output layer: those of the vision tower and
of the connector like those of the decoder. Embeddings, norms, biases and convolutions keep the type of the parameters.
Double quantisation is off, a block has 64 weights.

On the CPU one path only is used: weights are dequantised and multiplied in the type of the arithmetic. Where a CPU has
AVX512-BF16, bitsandbytes would repack the weights for a kernel that rounds the scales of blocks to bfloat16: logits
would then depend on the kind of CPU, and layers whose width is no multiple of 64 would fail.
"""

import importlib
from importlib import metadata

import torch

from workflow.lib.errors import BadInput

OUTPUT_LAYER = "lm_head"
"""What is left out, by the end of its name."""
INSTEAD = "or set run.quantisation to none, which is another experiment and is recorded as such"


def check(device: str, dtype: torch.dtype) -> None:
    """Refuse NF4 where a small layer cannot be quantised and multiplied on this device in this type.

    Raises
    ------
    BadInput
        Says what is missing or what bitsandbytes said.
    """
    for name in ("bitsandbytes", "accelerate"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise BadInput(
                f"run.quantisation is nf4 but {name} is not installed here: install envs/gpu.lock, {INSTEAD}."
            ) from None
        except Exception as error:  # a native library that does not fit raises whatever its loader raises
            raise BadInput(
                f"run.quantisation is nf4 but {name} cannot be imported here ({_first_line(error)}): repair it, "
                f"{INSTEAD}."
            ) from None
    try:
        _multiply(_small_layer(device, dtype))
    except Exception as error:
        raise BadInput(
            f"run.quantisation is nf4 but bitsandbytes {metadata.version('bitsandbytes')} cannot compute it on "
            f"{device} in {str(dtype).removeprefix('torch.')} here ({_first_line(error)}): choose another run.dtype or "
            f"machine, {INSTEAD}."
        ) from None


def _small_layer(device: str, dtype: torch.dtype) -> torch.nn.Module:
    from bitsandbytes.nn import Linear4bit

    layer = Linear4bit(64, 64, bias=False, compute_dtype=dtype, compress_statistics=False, quant_type="nf4")
    return steady(layer.to(device))


def settings(dtype: torch.dtype) -> object:
    """Return the papers' settings for ``from_pretrained``."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=False,
        bnb_4bit_compute_dtype=dtype,
        llm_int8_skip_modules=[OUTPUT_LAYER],
    )


def layers(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the 4-bit layers of a model by name; none where bitsandbytes was never imported."""
    # by name of the class, so that a model without such layers never imports bitsandbytes
    return {name: module for name, module in model.named_modules() if type(module).__name__ == "Linear4bit"}


def steady(model: torch.nn.Module) -> torch.nn.Module:
    """Keep 4-bit layers off the path that only some CPUs have, and return the model."""
    for layer in (module for module in model.modules() if type(module).__name__ == "Linear4bit"):
        layer.support_avx512bf16_for_cpu = False
    return model


@torch.inference_mode()
def try_layers(model: torch.nn.Module) -> None:
    """Multiply once by a 4-bit layer of every shape, so that one which cannot be computed is refused at once.

    Raises
    ------
    BadInput
        Names the layer, its sizes and what bitsandbytes said.
    """
    seen = set()
    for name, layer in layers(model).items():
        shape = (layer.in_features, layer.out_features)
        if shape in seen:
            continue
        seen.add(shape)
        try:
            _multiply(layer)
        except Exception as error:
            raise BadInput(
                f"run.quantisation is nf4 but bitsandbytes {metadata.version('bitsandbytes')} cannot multiply by layer "
                f"{name} of {shape[0]} by {shape[1]} here ({_first_line(error)}): run the shard on another machine, "
                f"{INSTEAD}."
            ) from None


def _multiply(layer: torch.nn.Module) -> None:
    asked = torch.ones(1, layer.in_features, dtype=layer.compute_dtype, device=layer.weight.device)
    if not torch.isfinite(layer(asked)).all():
        raise ArithmeticError("the product is not finite")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
