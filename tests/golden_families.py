"""What the current version makes of the tiny checkpoints; ``python -m tests.golden_families`` writes it down again."""

import tempfile
from pathlib import Path

import torch
import yaml

from tests import hub_layout
from workflow.lib import files, prompts
from workflow.models.adapter import Adapter, load_adapter
from workflow.models.precision import Precision

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = "tests/golden/families.json"
# template, number of the picture, its size, question
CASES = (
    ("as_run", 1, (80, 60), "Is there a lamp in the image?"),
    ("paper", 2, (60, 100), "Is there a boat in the image?"),
    ("native", 3, (150, 50), "Is there a clock in the image?"),
    ("as_run", 4, (200, 300), "Is there an apple in the image?"),
)
MODELS = {"llava": "llava15", "llava_next": "llava16_mistral", "instructblip": "instructblip", "qwen2_vl": "qwen2_vl"}
STEP = 331
"""Logits of every 331st id are kept."""


def template_of(family: str, name: str) -> prompts.Template | None:
    """Return a family's template by name, None where it has none of that name."""
    config = yaml.safe_load((REPOSITORY / "config.yaml").read_text(encoding="utf-8"))
    text = config["models"][MODELS[family]]["templates"].get(name)
    return prompts.Template(name, **config["prompts"][text]) if text else None


def measured(adapter: Adapter, family: str, case: tuple) -> dict:
    """Return prompt, ids of its text without the image, and what is generated."""
    name, number, (width, height), question = case
    prompt = adapter.render(template_of(family, name), question)
    inputs = adapter.encode([hub_layout.picture(number, width, height)], [prompt])
    found = adapter.generate(inputs, 4)
    image = getattr(adapter.model.config, "image_token_id", None) or hub_layout.IMAGE_IDS[family]
    return {
        "prompt_sha256": prompts.digest(prompt),
        "text_ids": [token for token in inputs["input_ids"][0].tolist() if token != image],
        "image_tokens": found.image_tokens[0],
        "new_ids": found.new_ids[0],
        "logits": [round(value, 6) for value in found.logits[0, ::STEP].tolist()],
        "logsumexp": round(float(torch.logsumexp(found.logits[0], dim=0)), 6),
    }


def main() -> None:
    """Write the golden file."""
    torch.set_num_threads(1)
    golden: dict = {}
    for family in hub_layout.FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            adapter = load_adapter(family, hub_layout.build(family, Path(folder)), Precision())
            golden[family] = {
                f"{case[0]}-{case[1]}": measured(adapter, family, case)
                for case in CASES
                if template_of(family, case[0])
            }
    files.write_json(golden, REPOSITORY / GOLDEN)


if __name__ == "__main__":
    main()
