"""The tiny checkpoints, their questions and images, made once for all tests of what is measured on models."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from workflow.lib import files, items, scenes
from workflow.models import images as image_files
from workflow.models.adapter import load_adapter
from workflow.models.mini import builders, clips
from workflow.models.precision import Precision

from .subjects import CLIPS, FAMILIES, ORIGIN, clip_settings, write_checkpoint


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="session")
def folders(root):
    for name in builders.SIZES:
        write_checkpoint(name, root / name)
    return {name: root / name for name in builders.SIZES}


@pytest.fixture(scope="session")
def adapters(folders):
    return {name: load_adapter(FAMILIES.get(name, name), folders[name], Precision()) for name in folders}


@pytest.fixture(scope="session")
def pictures():
    drawn, rng = scenes.test_scenes(4, 0, scenes.World())
    return [Image.fromarray(array) for array in scenes.render(drawn, rng)]


@pytest.fixture(scope="session")
def polls(root, pictures):
    """Items of four scenes, six questions each, with images and their hashes as the rules hand them over."""
    table = []
    for number, picture in enumerate(pictures, start=1):
        path = root / "scenes/images" / scenes.image_name(number)
        image_files.save_png(np.asarray(picture), path)
        table.append((path.name, files.sha256(path)))
    files.write_csv(pd.DataFrame(table, columns=["image", "sha256"]), root / "scenes/images.csv")
    rows = [
        {
            **{"dataset": "tiny", "split": "random", "id": number + 1, "image": table[number // 6][0]},
            **{"question": scenes.question(scenes.NAMES[number]), "label": ("yes", "no")[number % 2], "object": ""},
        }
        for number in range(24)
    ]
    rows[7]["question"] = "Is there an egg in the imange?"
    items.save(items.pa.Table.from_pylist(rows, schema=items.SCHEMA), root / "items.parquet", ORIGIN)
    return str(root / "items.parquet"), str(root / "scenes/images.csv")


@pytest.fixture(scope="session")
def base_file(root, adapters):
    state = {name: value.clone() for name, value in adapters["llava15"].model.state_dict().items()}
    save_file(state, root / "base.safetensors", metadata={"words": "[]"})
    return root / "base.safetensors"


@pytest.fixture(scope="session")
def clip_folders(root, base_file):
    for name in CLIPS:
        clips.train_clip(name, clip_settings(name), base_file, root / name)
    return {name: root / name for name in CLIPS}
