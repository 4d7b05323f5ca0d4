"""Rehearse the full study at full size: a checkpoint with LLaVA-1.5-7B's true shape and random weights, on the CPU.

    python benchmarks/full_size.py FOLDER [--precision nf4|bfloat16|float16|float32] [--compute float32]

FOLDER lies outside the repository and takes about 14 GB. The script writes a checkpoint as the hub holds it (float16,
several files with an index, the true names, a tokenizer and an image processor of the true sizes), one picture and six
questions. Files that are there are kept, so a killed run is continued. Then the workflow's own rules fetch the
checkpoint from that folder and answer the questions, with the reference engine and with shared_prefix, and compare
both. Every second id ends an answer, so that answers have about two tokens, as "Yes" and the end token of a trained
model. Printed are bytes and seconds of writing, seconds of checking and of loading the checkpoint, seconds a question,
peak memory, what the loaded model really was, and how far both engines agree. Weights are random: no answer means
anything.

In NF4 the computation is float32 unless --compute says otherwise: most CPUs multiply matrices of 16 bits more slowly.
Float32 itself takes 28 GB of memory.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import psutil
import torch
import yaml
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoConfig, LlavaForConditionalGeneration, LlavaProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from workflow.lib import files, logits
from workflow.lib.errors import BadInput
from workflow.models import warm
from workflow.models.mini import tokenizers

REPOSITORY = Path(__file__).resolve().parents[1]
MODEL_ID, REVISION = "random-weights/llava-1.5-7b", "0" * 40
CONFIG = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "image_token_index": 32000,
    "pad_token_id": 32001,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "text_config": {
        "model_type": "llama",
        "vocab_size": 32064,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05,
        "torch_dtype": "float16",
    },
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
        "projection_dim": 768,
    },
}
"""Shape of llava-hf/llava-1.5-7b-hf, by the keys of its config.json."""
SPREAD, HEAD_SPREAD = 0.02, 0.06
"""Standard deviations of the weights; with the second, logits of a width of 4,096 spread by about 4."""
FILE_BYTES = 2_000_000_000
"""A file of weights is closed before it would pass this; only one is in memory."""
SPARE_BYTES = 1_000_000_000
OBJECTS = ("couch", "snow board", "knife", "bench", "truck", "a bottle")
SPLIT = "random"


def hub_name(name: str) -> str:
    """Return the name that a parameter of the class has in the hub's files."""
    if name.startswith("lm_head"):
        return f"language_model.{name}"
    name = name.removeprefix("model.")
    if name.startswith("language_model."):
        return name.replace("language_model.", "language_model.model.", 1)
    if name.startswith("vision_tower.") and not name.startswith("vision_tower.vision_model."):
        return name.replace("vision_tower.", "vision_tower.vision_model.", 1)
    return name


def shapes(config: Mapping) -> dict[str, torch.Size]:
    """Return hub name -> shape of every parameter, without any memory for them."""
    described = dict(config)
    with torch.device("meta"):
        model = LlavaForConditionalGeneration(AutoConfig.for_model(described.pop("model_type"), **described))
    return {hub_name(name): parameter.shape for name, parameter in model.named_parameters()}


def parts(wanted: Mapping[str, torch.Size]) -> list[list[str]]:
    """Cut the parameters into files, in order."""
    cut: list[list[str]] = [[]]
    held = 0
    for name, shape in wanted.items():
        size = 2 * shape.numel()
        if held + size > FILE_BYTES and cut[-1]:
            cut.append([])
            held = 0
        cut[-1].append(name)
        held += size
    return cut


def drawn(name: str, shape: torch.Size, number: int) -> torch.Tensor:
    """Return one parameter: norms 1, biases 0, all else normal by a generator of its own."""
    if len(shape) == 1 and name.endswith("bias"):
        return torch.zeros(shape, dtype=torch.float16)
    if len(shape) == 1 and "embedding" not in name:
        return torch.ones(shape, dtype=torch.float16)
    spread = HEAD_SPREAD if "lm_head" in name else SPREAD
    return torch.empty(shape).normal_(std=spread, generator=torch.Generator().manual_seed(number)).half()


def write_checkpoint(folder: Path, config: Mapping) -> tuple[int, float]:
    """Write what is not there yet; return the bytes of all files and the seconds that writing took.

    Raises
    ------
    BadInput
        Where the disk has no room for what is missing.
    """
    begun = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*.part"):
        left.unlink()
    wanted = shapes(config)
    cut = parts(wanted)
    named = {f"model-{i:05d}-of-{len(cut):05d}.safetensors": part for i, part in enumerate(cut, 1)}
    absent = [file for file in named if not (folder / file).is_file()]
    need = sum(2 * wanted[name].numel() for file in absent for name in named[file]) + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < need:
        raise BadInput(
            f"{folder} has {free / 1e9:.1f} GB free where {need / 1e9:.1f} GB are needed: choose another disk."
        )
    numbers = {name: number for number, name in enumerate(wanted)}
    for file in absent:
        print(f"writing {file}", file=sys.stderr)
        tensors = {name: drawn(name, wanted[name], numbers[name]) for name in named[file]}
        with files.write_atomically(folder / file) as temporary:
            save_file(tensors, temporary, metadata={"format": "pt"})
        del tensors
    total = sum(2 * shape.numel() for shape in wanted.values())
    where = {name: file for file, part in named.items() for name in part}
    files.write_json({"metadata": {"total_size": total}, "weight_map": where}, folder / "model.safetensors.index.json")
    files.write_json(config, folder / "config.json")
    ends = list(range(0, config["text_config"]["vocab_size"], 2))
    ids = {"bos_token_id": 1, "eos_token_id": ends, "pad_token_id": 32001}
    files.write_json(ids, folder / "generation_config.json")
    side, patch = (config["vision_config"][key] for key in ("image_size", "patch_size"))
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
        tokenizer=tokenizers.for_model("llava15"),
        patch_size=patch,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    return sum(path.stat().st_size for path in folder.iterdir()), time.perf_counter() - begun


def write_questions(folder: Path) -> None:
    """Write one picture of a photograph's size, the table of its hash, and six questions in POPE's layout."""
    name = "COCO_val2014_000000000001.jpg"
    (folder / "images").mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (15, 20, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).resize((640, 480), Image.Resampling.BICUBIC)
    picture.save(folder / "images" / name, quality=95)
    files.write_text(f"image,sha256\n{name},{files.sha256(folder / 'images' / name)}\n", folder / "images.csv")
    asked = [
        {"question_id": i, "image": name, "text": f"Is there a {thing} in the image?", "label": ("no", "yes")[i % 2]}
        for i, thing in enumerate(OBJECTS, 1)
    ]
    files.write_text("".join(json.dumps(row) + "\n" for row in asked), folder / f"coco_pope_{SPLIT}.json")


def overlay(folder: Path, quantisation: str, dtype: str, threads: int) -> dict:
    """Return what the rehearsal changes of the full study."""
    return {
        "note": "Rehearsal at full size: random weights. No answer means anything.",
        "local_folder": str(folder / "copies"),
        "offline": True,
        "run": {
            "models": ["llava15"],
            "splits": [SPLIT],
            "shards": 1,
            "engine": "reference",
            "batch_size": 1,
            "device": "cpu",
            "dtype": dtype,
            "quantisation": quantisation,
            "threads": threads,
        },
        "dataset": {
            "name": "rehearsal",
            "revision": "generated",
            "questions": str(folder / "coco_pope_{split}.json"),
            "images": str(folder / "images.csv"),
            "rows": len(OBJECTS),
            "per_image": len(OBJECTS),
            "sha256": dict.fromkeys(("adversarial", "popular", "random"), ""),
        },
        "engines": {"split": SPLIT, "images": 1},
        "models": {"llava15": {"model_id": MODEL_ID, "revision": REVISION}},
    }


class Memory(threading.Thread):
    """Watches the processes below one process: kernel's peak of each, and the largest part that no file backs."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process(process)
        self.peaks: dict[str, dict[str, float]] = {}
        self.over = threading.Event()

    def run(self) -> None:
        """Look every quarter of a second until told to end."""
        while not self.over.wait(0.25):
            for rule, status in self.seen():
                held = self.peaks.setdefault(rule, {"VmHWM": 0.0, "RssAnon": 0.0})
                for field in held:
                    found = re.search(rf"^{field}:\s+(\d+) kB", status, flags=re.MULTILINE)
                    held[field] = max(held[field], int(found[1]) / 1024**2 if found else 0.0)

    def seen(self) -> Iterator[tuple[str, str]]:
        """Yield rule and status of every running script."""
        try:
            below = self.process.children(recursive=True)
        except psutil.NoSuchProcess:
            return
        for process in below:
            try:
                rule = re.search(r"\.(infer_\w+|fetch_\w+)\.py", " ".join(process.cmdline()))
                if rule:
                    yield rule[1], Path(f"/proc/{process.pid}/status").read_text()
            except (psutil.Error, OSError):
                continue


def run_rules(folder: Path, config: Mapping, threads: int) -> tuple[str, dict[str, dict[str, float]]]:
    """Run the workflow's rules in the folder; return what they printed and their peak memory in GiB by rule."""
    place = folder / "run"
    files.write_text(yaml.safe_dump(dict(config), sort_keys=False), folder / "overlay.yaml")
    results = place / "results/full"
    for done in ("checkpoints", "logits", "engines", "statistics"):
        shutil.rmtree(results / done, ignore_errors=True)
    targets = [f"results/full/logits/llava15/{SPLIT}/0.parquet", "results/full/statistics/engine_agreement.csv"]
    overlays = [str(REPOSITORY / "workflow/studies/full.yaml"), str(folder / "overlay.yaml")]
    command = [sys.executable, "-m", "snakemake", *targets, "--snakefile", str(REPOSITORY / "Snakefile")]
    command += ["--directory", str(place), "--cores", str(threads), "--configfile", *overlays]
    # an address where nothing listens: jobs then run in processes of their own, whose memory can be watched
    environment = os.environ | {warm.ADDRESS: str(folder / "none")}
    environment.setdefault("TQDM_MININTERVAL", "20")
    environment["HF_HUB_OFFLINE"] = "1"
    # every dequantised layer is new memory, which takes less time in large pages
    environment["THP_MEM_ALLOC_ENABLE"] = "1"
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        memory = Memory(process.pid)
        memory.start()
        printed = []
        for line in process.stdout:
            sys.stderr.write(line)
            printed.append(line)
        memory.over.set()
    if process.returncode:
        raise BadInput("the workflow stopped; the sentence above says why.")
    return "".join(printed), memory.peaks


def report(folder: Path, printed: str, peaks: Mapping[str, Mapping[str, float]]) -> None:
    """Print what both engines showed."""
    results = folder / "run/results/full"
    shards = {
        "infer_shard": results / f"logits/llava15/{SPLIT}/0.parquet",
        "infer_engine": results / "engines/llava15.parquet",
    }
    # jobs run one after the other, in an order of Snakemake's choice
    told = re.findall(r"^(?:local)?rule (infer_\w+):$.*?^(llava15: checkpoint checked .*?)$", printed, re.M | re.S)
    for rule, line in sorted(told, reverse=True):
        shard = shards[rule]
        stored = logits.read(shard)
        seconds = stored.table["seconds"].to_numpy()
        top = np.array(stored.table["top_logits"].to_pylist())
        peak = peaks[rule]
        print(f"{stored.identity['engine']}")
        print(f"  {line}")
        print(f"  {seconds.mean():.1f} s a question of {len(seconds)} ({seconds.min():.1f} to {seconds.max():.1f})")
        print(f"  peak memory {peak['VmHWM']:.1f} GiB, of it {peak['RssAnon']:.1f} GiB not backed by a file (sampled)")
        print(f"  highest logits {top[:, 0].min():.1f} to {top[:, 0].max():.1f}; 32nd {top[:, -1].min():.1f} and up")
        for field in logits.AS_LOADED:
            print(f"  {field}: {json.dumps(stored.identity[field])}")
    print((results / "statistics/engine_agreement.csv").read_text(), end="")


def main() -> int:
    """Write, run, report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where 14 GB may be written, outside the repository")
    parser.add_argument("--precision", choices=["nf4", "bfloat16", "float16", "float32"], default="nf4")
    parser.add_argument("--compute", choices=["float32", "bfloat16", "float16"], default="float32", help="with nf4")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of torch (default: all)")
    parser.add_argument("--write-only", action="store_true", help="write the checkpoint and stop")
    options = parser.parse_args()
    folder = options.folder.resolve()
    nf4 = options.precision == "nf4"
    try:
        if folder.is_relative_to(REPOSITORY):
            raise BadInput(f"{folder} is inside the repository: name a folder outside it.")
        size, seconds = write_checkpoint(folder / "copies" / MODEL_ID, CONFIG)
        write_questions(folder)
        print(f"checkpoint {size / 1e9:.2f} GB, written or found in {seconds:.0f} s")
        if options.write_only:
            return 0
        dtype = options.compute if nf4 else options.precision
        settings = overlay(folder, "nf4" if nf4 else "none", dtype, options.threads)
        report(folder, *run_rules(folder, settings, options.threads))
    except BadInput as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
