"""Compare the engines shared_prefix and reference on a LLaVA-1.5-shaped model, in one run of one process.

    python benchmarks/engines.py

The model has random weights and LLaVA-1.5's way of work: a CLIP tower that makes 576 image tokens (24 layers of width
256, patches of 14 in 336 pixels) and a LLaMA decoder (12 layers of width 512, vocabulary of 32,064). float32, CPU, six
questions an image. The engines take turns: shared_prefix answers all questions of an image after every second question
of the reference, so that whatever else the machine does meets both alike. Speeds are those of the median image; the
first image is not timed. Prints questions a second, what token counts allow, the largest difference of a logit and
peak memory; exits with status 1 where the ratio of speeds is below 4.6, a logit moves by 0.001 or more, or any answer
differs.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# idle threads that spin take time from the other engine's work on a shared machine
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from PIL import Image
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from workflow.lib import tokens
from workflow.lib.prompts import Template
from workflow.models import engines
from workflow.models.adapter import Adapter, load_adapter
from workflow.models.mini import tokenizers
from workflow.models.precision import Precision

REQUIRED = 4.6
TURNS = 3
"""Times that shared_prefix answers an image's questions while the reference does so once."""
TOLERANCE = 1e-3
TEMPLATE = Template("as_run", "text", "USER: <image>\n{question} Answer yes or no only.\nASSISTANT:")
# The mini tokenizer takes each word of the template as one token and spells other words. With these objects prompts
# differ in 17.5 tokens a question; on POPE's adversarial questions, in a genuine 32,000-piece vocabulary, it is 16.5.
OBJECTS = ("couch", "snow board", "knife", "bench", "truck", "a bottle")
IMAGE_SIDE, PATCH = 336, 14


def build(folder: Path, layers: int) -> None:
    """Write the checkpoint; weights are spread so that logits differ well between tokens."""
    torch.manual_seed(0)
    tokenizer = tokenizers.for_model("llava15")
    vision = CLIPVisionConfig(
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=2 * layers,
        num_attention_heads=4,
        image_size=IMAGE_SIDE,
        patch_size=PATCH,
        projection_dim=256,
    )
    text = LlamaConfig(
        vocab_size=32064,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=layers,
        num_attention_heads=8,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=32001,
    )
    model = LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text, image_token_index=32000, vision_feature_layer=-2)
    )
    torch.nn.init.normal_(model.lm_head.weight, std=0.15)
    model.save_pretrained(folder)
    size = {"height": IMAGE_SIDE, "width": IMAGE_SIDE}
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIDE}, crop_size=size),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


def draw(number: int) -> Image.Image:
    """Return a random picture of a photograph's size."""
    pixels = np.random.default_rng(number).integers(0, 256, (15, 20, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((640, 480), Image.Resampling.BICUBIC)


def peak_reset() -> bool:
    """Forget the process's peak memory; False where the system does not do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def memory(field: str) -> float:
    """Return VmHWM (peak) or VmRSS (now) of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024


class Run:
    """One engine with its rows, the seconds of each of its turns, and its peak memory."""

    def __init__(self, name: str, adapter: Adapter, questions: list, batch_size: int) -> None:
        candidates = tokens.declared_ids([tokens.LEGACY_8TOK])
        self.batches: Iterator = engines.ENGINES[name](
            adapter, questions, lambda question: draw(int(question.image)), candidates, batch_size
        )
        self.rows: list[dict] = []
        self.seconds: list[float] = []
        self.peak = float("nan")

    def turn(self, steps: int) -> None:
        """Let the engine yield some times."""
        known = peak_reset()
        begun = time.perf_counter()
        for _ in range(steps):
            self.rows += next(self.batches)
        self.seconds.append(time.perf_counter() - begun)
        if known:
            self.peak = np.fmax(self.peak, memory("VmHWM"))


def compare(adapter: Adapter, images: int) -> int:
    """Run both engines by turns, print what was found, return the exit status."""
    count = len(OBJECTS)
    questions = [
        engines.Question("benchmark", "random", i, str(i // count), adapter.render(TEMPLATE, text))
        for i, text in enumerate(f"Is there a {name} in the image?" for _ in range(images + 1) for name in OBJECTS)
    ]
    rest = memory("VmRSS") if peak_reset() else float("nan")
    reference = Run("reference", adapter, questions, 1)
    shared = [Run("shared_prefix", adapter, questions, count) for _ in range(TURNS)]
    for number in range(images + 1):
        for run in shared:
            reference.turn(count // TURNS)
            run.turn(1)
        print(f"image {number} of {images}" + ("" if number else " (not timed)"), file=sys.stderr)
    times = {
        "reference": np.reshape(reference.seconds, (-1, TURNS)).sum(axis=1)[1:],
        "shared_prefix": np.ravel([run.seconds[1:] for run in shared]),
    }
    peaks = {"reference": reference.peak, "shared_prefix": max(run.peak for run in shared)}
    opening = adapter.open(draw(0), [question.prompt for question in questions[:count]])
    own = sum(map(len, opening.rests))
    allowed = sum(map(len, opening.prompt_ids)) / (opening.shared + own)
    columns = [name for name in reference.rows[0] if name.startswith("logit_")] + ["top_logits", "logsumexp"]
    pairs = [pair for run in shared for pair in zip(reference.rows, run.rows, strict=True)]
    moved = max(float(np.abs(np.subtract(a[name], b[name])).max()) for a, b in pairs for name in columns)
    largest = max(float(np.abs(row["top_logits"]).max()) for row in reference.rows)
    told = ("id", "argmax_id", "generated_ids", "generated_text", "returned_text", "returned_prompt")
    differing = sum(any(a[name] != b[name] for name in told) for a, b in pairs)
    distinct = len({tuple(row["generated_ids"]) for row in reference.rows})
    ratio, mean_ratio = (mid(times["reference"]) / mid(times["shared_prefix"]) for mid in (np.median, np.mean))

    print(f"model         {sum(p.numel() for p in adapter.model.parameters()) / 1e6:.1f} M parameters, float32")
    print(f"prompts       {opening.image_tokens} image tokens, {opening.shared} tokens shared, {own} not")
    print(f"work          {images} images of {count} questions, {torch.get_num_threads()} threads")
    for name, seconds in times.items():
        print(
            f"{name:13} {count / np.median(seconds):7.3f} questions a second (an image {seconds.min():.2f} to "
            f"{seconds.max():.2f} s), peak memory {peaks[name]:.0f} MiB, {peaks[name] - rest:.0f} over the loaded model"
        )
    print(f"ratio         {ratio:7.2f} (required {REQUIRED}); of mean times {mean_ratio:.2f}")
    print(f"tokens allow  {allowed:7.2f} in the decoder, {count} in the vision tower")
    print(f"logits differ by {moved:.1e} at most (required below {TOLERANCE:g}; the largest is {largest:.1f})")
    print(f"answers differ in {differing} of {len(pairs)} rows; {distinct} different answers were given")
    return int(ratio < REQUIRED or not moved < TOLERANCE or differing > 0)


def main() -> int:
    """Build the checkpoint in a temporary folder and compare the engines on it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=6, help="timed images (default 6)")
    parser.add_argument("--layers", type=int, default=12, help="decoder layers; the tower has twice as many")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch (default: torch's own choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), options.layers)
        return compare(load_adapter("llava", Path(folder), Precision()), options.images)


if __name__ == "__main__":
    sys.exit(main())
