"""InstructBLIP: a Q-Former reads the image together with the question; its queries stand before the prompt."""

from collections.abc import Sequence

import torch
from PIL import Image
from transformers import DynamicCache
from transformers.models.instructblip.modeling_instructblip import InstructBlipForConditionalGeneration
from transformers.models.instructblip.processing_instructblip import InstructBlipProcessor

from workflow.models import llava
from workflow.models.opening import Opening


class Family(llava.Family):
    """``InstructBlipForConditionalGeneration``; prompts hold no image placeholder, the processor adds the queries.

    Its ``generate`` returns the prompt from transformers 4.47 on and did not before, which decides what a parser
    of the whole returned text sees.
    """

    model_class = InstructBlipForConditionalGeneration
    processor_class = InstructBlipProcessor

    @property
    def reader(self) -> torch.nn.Module:
        """The language model behind the Q-Former."""
        return self.model.language_model

    def encode(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return processor output, with the Q-Former's ids padded on the right.

        The Q-Former numbers positions from the first id on, padding included: padded on the left it would read a
        question at other positions than when that is asked alone.
        """
        inputs = super().encode(images, prompts)
        asked = self.processor.qformer_tokenizer(list(prompts), padding=True, padding_side="right", return_tensors="pt")
        device = self.model.device
        inputs |= {f"qformer_{name}": asked[name].to(device) for name in ("input_ids", "attention_mask")}
        return inputs

    @torch.inference_mode()
    def open(self, image: Image.Image, prompts: Sequence[str]) -> Opening:
        """Run the vision tower once; the queries differ from prompt to prompt and stand before all other tokens.

        So the decoder has nothing in common to read, and what is left of each prompt is all of it, as embeddings.
        """
        model = self.model
        inputs = self.encode([image], prompts)
        patches = model.vision_model(pixel_values=inputs["pixel_values"]).last_hidden_state
        patches = patches.expand(len(prompts), -1, -1)
        queries = model.query_tokens.expand(len(prompts), -1, -1)
        asked = inputs["qformer_attention_mask"]
        read = model.qformer(
            input_ids=inputs["qformer_input_ids"],
            attention_mask=torch.cat([asked.new_ones(queries.shape[:2]), asked], dim=1),
            query_embeds=queries,
            encoder_hidden_states=patches,
            encoder_attention_mask=asked.new_ones(patches.shape[:2]),
        )
        features = model.language_projection(read.last_hidden_state[:, : queries.shape[1]])
        embedded = model.get_input_embeddings()(inputs["input_ids"])
        image_places = model.get_placeholder_mask(inputs["input_ids"], inputs_embeds=embedded)
        embedded = embedded.masked_scatter(image_places, features.to(embedded.dtype))
        held = inputs["attention_mask"].bool()
        prompt_ids = [ids[kept].tolist() for ids, kept in zip(inputs["input_ids"], held, strict=True)]
        rests = [row[kept] for row, kept in zip(embedded, held, strict=True)]
        cache = DynamicCache(config=self.reader.config)
        return Opening(prompt_ids, self.image_positions(inputs)[0], cache, 0, 0, rests)
