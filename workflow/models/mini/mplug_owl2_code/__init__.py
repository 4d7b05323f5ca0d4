"""The miniature's counterpart of the package that mPLUG-Owl2's authors publish; copied into the checkpoint."""

from .modeling_mplug_owl2 import MPLUGOwl2LlamaForCausalLM as MPLUGOwl2LlamaForCausalLM
