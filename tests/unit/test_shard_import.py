"""Files of every kind from another machine, made by hand: recognised, refused by name, put in place."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workflow.lib import files, logits, shard_import, shard_kinds, signal_parts
from workflow.lib.errors import BadInput
from workflow.lib.shard_kinds import KINDS, Slot

from .test_logits import identity, questions, rows

CONDITIONS = {"model": "m", "revision": "r1", "seed": 42, "dataset_sha256": "d"}
NOISE = "random_image"
BAND = {"band": [1], "nouns": "as_run"}


def slot(kind, expected=None, measured=None, split="random", **keys):
    known = {"model": "m", "split": split, "shard": "{shard}", "noise": "", "template": ""} | keys
    place = f"{{root}}/{KINDS[kind].place}".format(root="results", **known)
    return Slot(kind, "m", split, place, f"{kind}.q", CONDITIONS | (expected or {}), measured=measured, **keys)


SLOTS = [
    slot("logits", {"engine": "reference", "shards": 2}),
    slot("noise", {"engine": "noisy", "shards": 2}, noise=NOISE),
    slot("template", {"engine": "reference", "shards": 1, "template": "paper"}, template="paper"),
    slot("template", {"engine": "reference", "shards": 1, "template": "native"}, template="native"),
    slot("engine", {"engine": "shared_prefix", "shards": 1}),
    slot("signals", {"shards": 2}, BAND),
    slot("clip", measured={"nouns": "as_run", "revisions": {"b": "r"}}),
]


def seal(path):
    path.with_name(path.name + ".sha256").write_text(f"{files.sha256(path)}  {path.name}\n")
    return path


def of_logits(path, ids, **changes):
    stated = CONDITIONS | {"engine": "reference", "template": "as_run", "kind": "logits", "noise": ""} | changes
    logits.write(logits.Logits(rows(ids), identity(**stated)), path)
    return seal(path)


def part(path, ids, columns, **changes):
    stated = dict.fromkeys(signal_parts.AGREE, "x") | CONDITIONS | {"dataset": "pope", "split": "random"} | changes
    frame = pd.DataFrame({"dataset": "pope", "split": "random", "id": list(ids)})
    for number, column in enumerate(columns):
        frame[column] = "dog" if column == "noun" else np.float32(number / 10)
    signal_parts.save(frame, path, stated)
    return seal(path)


def of_signals(path, ids, **changes):
    return part(
        path, ids, KINDS["signals"].columns, **{"kind": "signals", "shard": 0, "shards": 2, "measured": BAND} | changes
    )


def of_clip(path, ids, **changes):
    measured = {"nouns": "as_run", "revisions": {"b": "r"}, "checkpoints": {"b": "c"}}
    stated = {"kind": "clip", "measured": measured, "missing": {}} | changes
    return part(path, ids, ["noun", *signal_parts.SIMILARITIES["b"]], **stated)


# one good file of each kind: how it is made, and where it belongs
GOOD = {
    "logits": (lambda path: of_logits(path, range(1, 7)), "results/logits/m/random/0.parquet"),
    "noise": (
        lambda path: of_logits(path, range(7, 13), shard=1, kind="noise", noise=NOISE, engine="noisy"),
        f"results/noise/{NOISE}/m/random/1.parquet",
    ),
    "template": (
        lambda path: of_logits(path, range(1, 13), kind="template", template="native", shards=1),
        "results/templates/m/native/logits.parquet",
    ),
    "engine": (
        lambda path: of_logits(path, range(1, 7), kind="engine", engine="shared_prefix", shards=1),
        "results/engines/m.parquet",
    ),
    "signals": (lambda path: of_signals(path, range(7, 13), shard=1), "results/signal_shards/m/random/1.parquet"),
    "clip": (lambda path: of_clip(path, range(1, 13)), "results/clip/m/random.parquet"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def verify(folder, images="", may_differ=()):
    asked = {f"{kind}.q": (questions(6 if kind == "engine" else 12), {"sha256": "d"}) for kind in KINDS}
    return shard_import.verify(folder, shard_import.Expected(SLOTS, asked, images, may_differ))


def placed(folder, **keywords):
    return [str(path) for path in shard_import.put_in_place(verify(folder, **keywords))]


def restated(path, **changes):
    """Change what a file says of itself, and its hash with it; None takes a field away."""
    table = pq.read_table(path)
    stated = json.loads(table.schema.metadata[logits.METADATA_KEY]) | changes
    stated = {field: value for field, value in stated.items() if value is not None}
    pq.write_table(table.replace_schema_metadata({logits.METADATA_KEY: json.dumps(stated).encode()}), path)
    return seal(path)


def test_every_kind_is_recognised_by_what_it_says_and_put_in_its_place(folder):
    wanted = {}
    for number, (make, place) in enumerate(GOOD.values()):
        # names say nothing, and come in another order than kinds
        make(folder / f"{9 - number}.parquet")
        wanted[place] = (folder / f"{9 - number}.parquet").read_bytes()
    assert sorted(placed(folder)) == sorted(wanted)
    root = folder.parent
    for place, content in wanted.items():
        assert (root / place).read_bytes() == content
        assert shard_import.is_imported(root / place)
    # again: all there already, nothing is new
    assert placed(folder) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"revision": "r2"}, "made with revision 'r2' where the configuration says 'r1'"),
        ({"seed": 43}, "made with seed 43 where the configuration says 42"),
        ({"dataset_sha256": "e"}, "made with dataset_sha256 'e'"),
        ({"model": "other"}, r"model 'other' is not in run.models \(m\)"),
        ({"split": "popular"}, r"split 'popular' is not in run.splits, or not asked of this kind \(random\)"),
        ({"kind": "audio"}, "kind 'audio' is not known"),
    ],
)
def test_conditions_are_checked_for_every_kind(folder, kind, changes, sentence):
    GOOD["engine"][0](folder / "b.parquet")
    GOOD[kind][0](folder / "a.parquet")
    restated(folder / "a.parquet", **changes)
    with pytest.raises(BadInput, match=sentence):
        verify(folder)
    assert not (folder.parent / "results").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_images_and_rows_are_checked_for_every_kind(folder, kind):
    path = GOOD[kind][0](folder / "a.parquet")
    with pytest.raises(BadInput, match="made with images_sha256 'x' where the configuration says 'y'"):
        verify(folder, images="y")
    table = pq.read_table(path)
    metadata = table.schema.metadata
    ids = table["id"].to_pylist()
    other = table.set_column(table.column_names.index("id"), table.schema.field("id"), pa.array([*ids[:-1], 99]))
    pq.write_table(other.replace_schema_metadata(metadata), path)
    seal(path)
    with pytest.raises(BadInput, match=rf"row {len(ids) - 1}: id 99 where {ids[-1]} is asked in shard"):
        verify(folder)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("noise", {"noise": "fog"}, r"noise 'fog' is not a kind of noise \(random_image\)"),
        ("noise", {"engine": "noisier"}, "made with engine 'noisier' where the configuration says 'noisy'"),
        ("noise", {"kind": "logits", "noise": ""}, "made with engine 'noisy' where the configuration says 'reference'"),
        ("template", {"template": "sung"}, r"template 'sung' is not a template of that model \(paper, native\)"),
        ("template", {"kind": "logits"}, "made with shards 1 where the configuration says 2"),
        (
            "engine",
            {"engine": "reference"},
            "made with engine 'reference' where the configuration says 'shared_prefix'",
        ),
        ("signals", {"measured": BAND | {"band": [2]}}, r"made with measured.band \[2\]"),
        ("signals", {"shards": 3}, "made with shards 3 where the configuration says 2"),
        ("signals", {"measured": None}, "lacks measured in its metadata"),
        ("clip", {"measured": {"nouns": "as_run", "revisions": {"b": "q"}}}, "made with measured.revisions {'b': 'q'}"),
        ("logits", {"shard": "merged"}, "shard 'merged' of 2: only single shards are imported"),
    ],
)
def test_what_only_one_kind_states(folder, kind, changes, sentence):
    restated(GOOD[kind][0](folder / "a.parquet"), **changes)
    with pytest.raises(BadInput, match=sentence):
        verify(folder)


def test_a_file_from_before_kinds_were_stated_holds_logits(folder):
    restated(GOOD["logits"][0](folder / "a.parquet"), kind=None, noise=None)
    assert placed(folder) == [GOOD["logits"][1]]
    # any other file of that time is refused by the field that tells it apart
    restated(GOOD["noise"][0](folder / "b.parquet"), kind=None, noise=None)
    with pytest.raises(BadInput, match="made with engine 'noisy'"):
        verify(folder)


@pytest.mark.parametrize(
    ("make", "field"),
    [(of_logits, "device_name"), (of_signals, "checkpoint")],
)
def test_neighbours_must_belong_together(folder, make, field):
    first, second = folder / "a.parquet", folder / "b.parquet"
    make(first, range(1, 7))
    make(second, range(7, 13), shard=1, **{field: "another"})
    with pytest.raises(BadInput, match=f"b.parquet and .*a.parquet do not belong together .{field}: x | another"):
        verify(folder)
    assert len(verify(folder, may_differ=[field])) == 2
    # the same where the first one is in place already
    second.rename(folder.parent / "b.parquet")
    placed(folder)
    first.unlink()
    seal((folder.parent / "b.parquet").rename(second))
    with pytest.raises(BadInput, match=r"b.parquet and results/.*/0.parquet do not belong together"):
        verify(folder)


def test_hashes_cuts_and_doubles(folder):
    path = GOOD["signals"][0](folder / "a.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(BadInput, match="stands beside it: copy it again"):
        verify(folder)
    seal(path)
    with pytest.raises(BadInput, match="not a whole Parquet file"):
        verify(folder)
    path.write_bytes(whole)
    path.with_name("a.parquet.sha256").unlink()
    with pytest.raises(BadInput, match=r"has no a.parquet.sha256 beside it"):
        verify(folder)
    seal(path)
    (folder / "b.parquet").write_bytes(whole)
    seal(folder / "b.parquet")
    with pytest.raises(BadInput, match=r"b.parquet is one of two files for results/signal_shards/m/random/1.parquet"):
        verify(folder)
    (folder / "b.parquet").unlink()
    placed(folder)
    of_signals(path, range(7, 13), shard=1, device_name="another")
    with pytest.raises(BadInput, match=r"is not the results/signal_shards/m/random/1.parquet that is there already"):
        verify(folder)


def test_a_part_with_a_hole_is_refused(folder):
    path = GOOD["clip"][0](folder / "a.parquet")
    table = pq.read_table(path)
    name = signal_parts.SIMILARITIES["b"][0]
    place = table.column_names.index(name)
    values = table[name].to_numpy().copy()
    values[3] = np.nan
    holed = table.set_column(place, table.schema.field(name), pa.array(values))
    pq.write_table(holed, path)
    seal(path)
    with pytest.raises(BadInput, match=f"row 3: {name} is not a finite number"):
        verify(folder)
    pq.write_table(table.drop_columns(["noun"]), path)
    seal(path)
    with pytest.raises(BadInput, match="has no column 'noun'"):
        verify(folder)


def test_a_replaced_file_is_no_import_any_more(folder):
    GOOD["logits"][0](folder / "a.parquet")
    placed(folder)
    target = folder.parent / GOOD["logits"][1]
    assert shard_import.is_imported(target)
    of_logits(target, range(1, 7), seed=7)
    assert not shard_import.is_imported(target)
    target.unlink()
    assert not shard_import.is_imported(target)


def test_a_file_of_another_origin_is_refused(folder):
    pq.write_table(pa.table({"id": [1]}), folder / "a.parquet")
    seal(folder / "a.parquet")
    with pytest.raises(BadInput, match="carries no identity"):
        verify(folder)
    assert shard_kinds.KINDS.keys() == GOOD.keys()


def test_every_kind_is_the_output_of_a_rule_that_declares_no_inputs_for_an_import(repository):
    text = "".join(path.read_text() for path in sorted((repository / "workflow/rules").glob("*.smk")))
    rules = re.findall(r"^rule (infer_\w+):(.*?)^    script:", text, flags=re.MULTILINE | re.DOTALL)
    made = {}
    for _, body in rules:
        kind = re.search(r'unpack\(inference_inputs\("(\w+)"', body)[1]
        made[kind] = re.search(r'output:\n        \w+="<results>/([^"]+)"', body)[1]
    assert made == {kind: held.place for kind, held in KINDS.items()}
