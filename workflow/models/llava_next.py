"""LLaVA-1.6 (LLaVA-NeXT): base image and tiles, Mistral or LLaMA vocabulary."""

from transformers.models.llava_next.modeling_llava_next import LlavaNextForConditionalGeneration
from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

from workflow.models import llava


class Family(llava.Family):
    """As LLaVA-1.5; the processor also returns the sizes of the images, from which the tiles follow."""

    model_class = LlavaNextForConditionalGeneration
    processor_class = LlavaNextProcessor
