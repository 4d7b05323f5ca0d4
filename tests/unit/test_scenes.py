"""The synthetic polls have POPE's semantics."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow.lib import scenes

WORLD = scenes.World()


def drawn(n: int = 60, seed: int = 0) -> scenes.Scenes:
    return scenes.sample_scenes(n, np.random.default_rng(seed), WORLD)


@pytest.fixture(scope="module")
def counted() -> scenes.Statistics:
    return scenes.training_statistics(4000, 0, WORLD)


def polled(split: str, counted: scenes.Statistics) -> list[dict]:
    return scenes.poll(drawn(), counted, split, np.random.default_rng(7))


def test_names_are_distinct_single_words_without_an_answer_in_them():
    assert len(set(scenes.NAMES)) == len(scenes.NAMES) == 24
    for name in scenes.NAMES:
        assert name.isalpha() and name.islower()
        assert "yes" not in name and "no" not in name


def test_both_articles_occur():
    assert scenes.question("umbrella") == "Is there an umbrella in the image?"
    assert scenes.question("car") == "Is there a car in the image?"


def test_every_theme_has_one_object_of_each_popularity_tier():
    themes = scenes.theme_of(np.arange(24)).reshape(4, 6)
    assert all(sorted(row) == list(range(6)) for row in themes.tolist())


def test_no_two_objects_look_alike():
    looks = {(number % 6, (3 * (number // 6) + number % 6) % 4) for number in range(24)}
    assert len(looks) == 24


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_a_scene_holds_three_to_five_distinct_objects_in_distinct_cells(seed):
    found = drawn(20, seed)
    for objects, cells in zip(found.objects, found.cells, strict=True):
        used = objects[objects >= 0]
        assert WORLD.objects_min <= len(used) <= WORLD.objects_max
        assert len(set(used)) == len(used)
        assert (objects[len(used) :] == -1).all()
        assert len(set(cells)) == len(cells)
    assert (found.present().sum(1) == (found.objects >= 0).sum(1)).all()


def test_popularity_falls_with_rank_and_theme_mates_occur_together(counted):
    assert counted.frequency[:6].min() > counted.frequency[18:].max()
    themes = scenes.theme_of(np.arange(24))
    mates = (themes[:, None] == themes) & ~np.eye(24, dtype=bool)
    assert counted.cooccurrence[mates].mean() > 2 * counted.cooccurrence[~mates].mean()


def test_measure_counts_by_hand():
    objects = np.array([[0, 1, 2], [0, 1, 3], [0, 4, 5]])
    rest = np.zeros((3, 3))
    counted = scenes.measure(scenes.Scenes(objects, rest, rest, rest))
    assert counted.frequency[:6].tolist() == [3, 2, 1, 1, 1, 1]
    assert counted.cooccurrence[0, :6].tolist() == [0, 2, 1, 1, 1, 1]
    assert (counted.cooccurrence == counted.cooccurrence.T).all()


@pytest.mark.parametrize("split", scenes.SPLITS)
def test_labels_alternate_and_are_true(split, counted):
    rows = polled(split, counted)
    present = drawn().present()
    assert [row["question_id"] for row in rows] == list(range(1, 361))
    assert [row["label"] for row in rows] == ["yes", "no"] * 180
    for number, row in enumerate(rows):
        scene = number // 6
        assert row["image"] == f"SCENE_{scene + 1:012d}.png"
        name = row["text"].removesuffix(" in the image?").split()[-1]
        assert present[scene, scenes.NAMES.index(name)] == (row["label"] == "yes")
    for start in range(0, len(rows), 6):
        assert len({row["text"] for row in rows[start : start + 6]}) == 6


def test_positives_are_shared_by_all_splits(counted):
    sets = [[row for row in polled(split, counted) if row["label"] == "yes"] for split in scenes.SPLITS]
    assert sets[0] == sets[1] == sets[2]


def test_popular_asks_the_most_frequent_absent_objects():
    objects = np.array([[0, 5, 6]])
    rest = np.zeros((1, 3))
    frequency = np.arange(24)[::-1]
    counted = scenes.Statistics(frequency, np.zeros((24, 24), dtype=int))
    rng = np.random.default_rng(0)
    assert scenes.negatives(scenes.Scenes(objects, rest, rest, rest), counted, "popular", rng).tolist() == [[1, 2, 3]]


def test_adversarial_asks_what_occurs_most_with_each_object_asked_about():
    objects = np.array([[0, 5, 6]])
    rest = np.zeros((1, 3))
    together = np.zeros((24, 24), dtype=int)
    together[0, [5, 9, 10]] = 30, 20, 10  # 5 is present, so 9 is the first choice for object 0
    together[5, [9, 11]] = 20, 10  # 9 is taken
    counted = scenes.Statistics(np.zeros(24, dtype=int), together)
    rng = np.random.default_rng(0)
    # for object 6 all counts are equal: the smallest absent number
    found = scenes.negatives(scenes.Scenes(objects, rest, rest, rest), counted, "adversarial", rng)
    assert found.tolist() == [[9, 11, 1]]


def test_random_negatives_are_spread_evenly_and_popular_ones_are_not(counted):
    many = drawn(3000, 1)
    absent = ~many.present()
    rng = np.random.default_rng(0)
    chosen = np.bincount(scenes.negatives(many, counted, "random", rng).ravel(), minlength=24) / absent.sum(0)
    assert chosen.max() / chosen.min() < 1.5
    popular = np.bincount(scenes.negatives(many, counted, "popular", rng).ravel(), minlength=24)
    assert popular[:6].sum() > 0.95 * popular.sum()


def test_an_unknown_split_is_named(counted):
    with pytest.raises(ValueError, match="no such split: 'popluar'"):
        scenes.negatives(drawn(), counted, "popluar", np.random.default_rng(0))


def test_equal_seeds_give_equal_benchmarks(counted):
    first, second = drawn(seed=3), drawn(seed=3)
    assert (first.objects == second.objects).all()
    pictures = [scenes.render(first, np.random.default_rng(5), WORLD) for _ in range(2)]
    assert (pictures[0] == pictures[1]).all()
    assert polled("random", counted) == polled("random", counted)
    assert (drawn(seed=4).objects != first.objects).any()


def test_images_show_an_object_in_its_cell_only():
    world = scenes.World(pixel_noise=0.0, visibility_min=1.0)
    found = scenes.sample_scenes(5, np.random.default_rng(0), world)
    pictures = scenes.render(found, np.random.default_rng(0), world)
    assert pictures.shape == (5, 48, 48, 3) and pictures.dtype == np.uint8
    painted = (pictures != 112).any(-1).reshape(5, 3, 16, 3, 16).any((2, 4)).reshape(5, 9)
    for row in range(5):
        used = found.cells[row][found.objects[row] >= 0]
        assert np.flatnonzero(painted[row]).tolist() == sorted(used)


def test_json_lines_are_popes_layout(counted):
    text = scenes.json_lines(polled("random", counted)[:2])
    assert [list(json.loads(line)) for line in text.splitlines()] == [["question_id", "image", "text", "label"]] * 2
    assert text.endswith("\n")


def test_scenes_too_small_to_be_asked_about_are_refused():
    with pytest.raises(ValueError, match="3 to 9 objects, not 2 to 5"):
        scenes.World(objects_min=2)
