"""One file of each kind, taken out of the tiny study and brought back as if another machine had made it."""

import shutil

from workflow.lib import files, shard_import

from .test_refusals import change_identity, refused

FILES = [
    "results/logits/llava15/random/1.parquet",
    "results/noise/gaussian_embedding/llava15/adversarial/0.parquet",
    "results/signal_shards/llava15/adversarial/1.parquet",
    "results/clip/llava15/adversarial.parquet",
    "results/engines/instructblip.parquet",
    "results/templates/llava15/paper/logits.parquet",
]


def seal(path):
    path.with_name(path.name + ".sha256").write_text(f"{files.sha256(path)}  {path.name}\n")


def test_every_kind_comes_back_and_nothing_is_run_again(tiny, tmp_path):
    # no exhibit of this study needs it
    tiny.build(FILES[-1])
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, name in enumerate(FILES):
        shutil.move(tiny.path(name), folder / f"{number}.parquet")
        seal(folder / f"{number}.parquet")
    # one that fits neither engine of this study
    change_identity(folder / "4.parquet", engine="reference")
    seal(folder / "4.parquet")
    refused(
        tiny,
        "made with engine 'reference' where the configuration says 'shared_prefix'",
        *("import_shards", "--config", f"shards={folder}"),
    )
    assert not any(tiny.path(name).exists() for name in FILES)
    change_identity(folder / "4.parquet", engine="shared_prefix")
    seal(folder / "4.parquet")
    assert tiny.build("import_shards", "--config", f"shards={folder}") == {"import_shards": 1}
    assert all(shard_import.is_imported(tiny.path(name)) for name in FILES)
    assert not tiny.planned(*FILES)
    # the rewritten file alone has other bytes, so what uses it is made again; no inference is
    assert not [rule for rule in tiny.planned() if rule.startswith(("infer_", "train_", "merge_", "join_"))]
