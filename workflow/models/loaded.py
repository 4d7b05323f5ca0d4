"""What was really loaded, read from the model itself; refused where it is not what was asked for."""

import re
from collections import Counter
from importlib import metadata

import torch

from workflow.lib.errors import BadInput
from workflow.models import nf4
from workflow.models.precision import Precision


def verified(model: torch.nn.Module, decoder: torch.nn.Module | None, precision: Precision) -> dict[str, dict]:
    """Describe a loaded model, and refuse it where it does not have the precision that was asked for.

    Parameters
    ----------
    decoder : Module or None
        The part of it whose attention kernel ``run.attention`` chooses; other parts may have one of their own. None
        where nothing can be chosen.

    Returns
    -------
    dict
        ``parameter_types``: type -> number of parameters, two 4-bit weights counting as one of uint8;
        ``attention_used``: see `attention`; ``quantised``: see `quantised`.

    Raises
    ------
    BadInput
        Says what was asked, what was found, and what to do.
    """
    nf4.steady(model)
    found = {"parameter_types": types(model), "attention_used": attention(model), "quantised": quantised(model)}
    _check_quantisation(model, precision, found["quantised"])
    _check_types(model, precision)
    kernel = decoder.config._attn_implementation if decoder else precision.attention
    if kernel != precision.attention:
        raise BadInput(
            f"run.attention is {precision.attention} but the decoder of {type(model).__name__} was loaded with "
            f"{kernel}: set run.attention to {kernel}, or choose another environment (models.*.environment)."
        )
    nf4.try_layers(model)
    return found


def attention(model: torch.nn.Module) -> dict[str, str]:
    """Return class of each kind of attention -> its kernel by the configuration, "own" where it states none.

    In transformers before 4.48 a kernel is a class of its own, so that the name of the class tells.
    """
    found = {}
    for module in model.modules():
        inner = [part for part in module.modules() if _is_attention(part)]
        if _is_attention(module) and len(inner) == 1:
            found[type(module).__name__] = (
                getattr(getattr(module, "config", None), "_attn_implementation", None) or "own"
            )
    return dict(sorted(found.items()))


def _is_attention(module: torch.nn.Module) -> bool:
    return type(module).__name__.endswith("Attention")


def types(model: torch.nn.Module) -> dict[str, int]:
    """Return type -> number of parameters."""
    count: Counter[str] = Counter()
    for parameter in model.parameters():
        count[_short(parameter.dtype)] += parameter.numel()
    return dict(sorted(count.items()))


def quantised(model: torch.nn.Module) -> dict[str, object]:
    """Describe the 4-bit layers of a model; empty where it has none.

    Returns
    -------
    dict
        ``layers``: name with * for the number of a layer -> how many there are; ``kept``: names of linear layers that
        are not quantised; ``type``, ``block``, ``double``, ``compute``, ``storage``: how, with every value found;
        ``kernel``: how they are multiplied; ``bitsandbytes``: its version.
    """
    held = nf4.layers(model)
    if not held:
        return {}
    kept = [name for name, module in model.named_modules() if type(module) is torch.nn.Linear]
    states = [layer.weight.quant_state for layer in held.values()]
    if None in states:
        raise BadInput("run.quantisation is nf4 but some weights were left as they were: use the pinned transformers.")
    packed = any(layer.support_avx512bf16_for_cpu for layer in held.values())
    device = next(iter(held.values())).weight.device.type
    return {
        "layers": dict(sorted(Counter(map(_pattern, held)).items())),
        "kept": sorted(set(map(_pattern, kept))),
        "type": _all(state.quant_type for state in states),
        "block": _all(str(state.blocksize) for state in states),
        "double": _all(str(bool(state.nested)).lower() for state in states),
        "compute": _all(_short(layer.compute_dtype) for layer in held.values()),
        "storage": _all(_short(layer.weight.dtype) for layer in held.values()),
        "kernel": device if device != "cpu" else "cpu, packed" if packed else "cpu, dequantised",
        "bitsandbytes": metadata.version("bitsandbytes"),
    }


def _check_quantisation(model: torch.nn.Module, precision: Precision, found: dict) -> None:
    if precision.quantisation == "none":
        if found:
            raise BadInput(
                f"run.quantisation is none but {sum(found['layers'].values())} layers of the checkpoint are 4-bit: its "
                "files are quantised already; take the original checkpoint."
            )
        return
    if not found:
        raise BadInput(
            f"run.quantisation is nf4 but no layer of the loaded {type(model).__name__} is 4-bit: use the pinned "
            "transformers."
        )
    asked = {"type": "nf4", "block": "64", "double": "false", "compute": precision.dtype}
    for name, value in asked.items():
        if found[name] != value:
            raise BadInput(
                f"run.quantisation is nf4 but the checkpoint was loaded with {name} {found[name]} where {value} is "
                "asked: its files are quantised already; take the original checkpoint."
            )
    other = [name for name in found["kept"] if not name.endswith(nf4.OUTPUT_LAYER)]
    if other or not found["kept"]:
        what = f"{other[0]} was left out" if other else "the output layer was not left out"
        raise BadInput(
            f"run.quantisation is nf4 but {what} where all linear layers but the output layer are to be 4-bit: use the "
            "pinned transformers."
        )


def _check_types(model: torch.nn.Module, precision: Precision) -> None:
    packed = {f"{name}.weight" for name in nf4.layers(model)} if precision.quantisation == "nf4" else set()
    # parameters that the class itself holds in float32, such as InstructBLIP's queries
    single = tuple(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, parameter in model.named_parameters():
        if _short(parameter.dtype) == precision.dtype or name in packed:
            continue
        if parameter.dtype == torch.float32 and any(part in single for part in name.split(".")):
            continue
        raise BadInput(
            f"run.dtype is {precision.dtype} but {name} was loaded as {_short(parameter.dtype)}: take the original "
            "checkpoint and the pinned transformers."
        )


def _pattern(name: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def _all(values) -> str:
    return " and ".join(sorted(set(values)))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
