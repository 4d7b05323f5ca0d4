"""Draw the test scenes, write their images and the questions of the three splits."""

from pathlib import Path

import pandas as pd

from workflow.lib import files, job, scenes
from workflow.models import images

with job.opened(snakemake) as run:
    world = scenes.World(**run.params.scenes["world"])
    drawn, rng = scenes.test_scenes(run.params.scenes["images"], run.params.seed, world)
    statistics = scenes.training_statistics(run.params.scenes["counted_scenes"], run.params.seed, world)
    folder, rows = Path(run.output.images), []
    for number, picture in enumerate(scenes.render(drawn, rng, world), start=1):
        path = folder / scenes.image_name(number)
        images.save_png(picture, path)
        rows.append((path.name, files.sha256(path)))
    for split, path in zip(scenes.SPLITS, run.output.polls, strict=True):
        files.write_text(scenes.json_lines(scenes.poll(drawn, statistics, split, rng)), path)
    files.write_csv(pd.DataFrame(rows, columns=["image", "sha256"]), run.output.table)
