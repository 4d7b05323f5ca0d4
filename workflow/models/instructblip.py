"""InstructBLIP: a Q-Former reads the image together with the question; its queries stand before the prompt."""

from transformers.models.instructblip.modeling_instructblip import InstructBlipForConditionalGeneration
from transformers.models.instructblip.processing_instructblip import InstructBlipProcessor

from workflow.models import llava


class Family(llava.Family):
    """``InstructBlipForConditionalGeneration``; prompts hold no image placeholder, the processor adds the queries.

    Its ``generate`` returns the prompt from transformers 4.47 on and did not before, which decides what a parser
    of the whole returned text sees.
    """

    model_class = InstructBlipForConditionalGeneration
    processor_class = InstructBlipProcessor
    unquantised = ("language_model.lm_head", "vision_model", "qformer", "language_projection")
