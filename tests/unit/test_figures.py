"""Figures: what is plotted, that nothing overlaps, and that the same data give the same files."""

import itertools
import json
from pathlib import Path

import matplotlib
import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from workflow.lib import files, forms
from workflow.lib.errors import BadInput
from workflow.lib.figures import fig1, fig2, fig3, fig4, fig5, fig6, fig7, fig8, fig9, fig10, outcomes, running, style

SPLITS = ("adversarial", "popular", "random")


def drawn_texts(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> list[Text]:
    """Return the texts that really appear; tick labels outside the axes exist but are never drawn."""
    texts: list[Text] = []
    original = Text.draw

    def record(self, *arguments, **named):
        if self.get_visible() and self.get_text().strip():
            texts.append(self)
        return original(self, *arguments, **named)

    canvas = FigureCanvasAgg(figure)
    with monkeypatch.context() as patched:
        patched.setattr(Text, "draw", record)
        canvas.draw()
    return texts


def assert_clear(figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    """No two texts overlap, and all lie on the page."""
    boxes = {}
    for number, text in enumerate(drawn_texts(figure, monkeypatch)):
        # an annotation's own extent includes its arrow
        boxes[number, text.get_text()] = Text.get_window_extent(text)
    assert len(boxes) >= 3
    width, height = figure.get_size_inches() * figure.dpi
    for (_, text), box in boxes.items():
        assert box.x0 >= -0.5 and box.y0 >= -0.5 and box.x1 <= width + 0.5 and box.y1 <= height + 0.5, text
    for ((_, one), a), ((_, other), b) in itertools.combinations(boxes.items(), 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        up = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across < 0.5 or up < 0.5, f"{one!r} overlaps {other!r}"
    assert any(text.startswith("study: ") for _, text in boxes)


def transitions(
    yes: tuple[int, ...], no: tuple[int, ...], model: str = "m", split: str = "adversarial"
) -> pd.DataFrame:
    cells = ("yes_yes", "yes_no", "no_yes", "no_no")
    rows = [
        {"study": "mini", "model": model, "split": split, "label": label} | dict(zip(cells, counts, strict=True))
        for label, counts in (("yes", yes), ("no", no))
    ]
    return pd.DataFrame(rows)


def first_tokens(counts: dict[int, int], model: str = "m", splits: tuple[str, ...] = ("adversarial",)) -> pd.DataFrame:
    rows = [
        {"study": "mini", "model": model, "split": split, "token_id": token, "text": "", "count": count}
        for split in splits
        for token, count in counts.items()
    ]
    return pd.DataFrame(rows).assign(n=sum(counts.values()))


EIGHT = dict.fromkeys(forms.SURFACES, 0)


def answers(labels: str, two: str, eight: str, split: str = "adversarial") -> pd.DataFrame:
    """Answers from strings of y and n, one letter a question; ids from 1."""
    words = {"y": "yes", "n": "no", "u": "unknown"}
    frames = []
    for readout, given_answers in (("legacy_2tok", two), ("legacy_8tok", eight)):
        frames.append(
            pd.DataFrame(
                {
                    "dataset": "d",
                    "split": split,
                    "id": range(1, len(labels) + 1),
                    "label": [words[letter] for letter in labels],
                    "emitted_id": [3869 if letter == "y" else 1939 for letter in eight],
                    "emitted_text": [" Yes" if letter == "y" else " No" for letter in eight],
                    "readout": readout,
                    "answer": [words[letter] for letter in given_answers],
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def items_of(labels: str, long: bool = False) -> pd.DataFrame:
    words = {"y": "yes", "n": "no"}
    name = "very long dining table name" if long else "cup"
    return pd.DataFrame(
        {
            "dataset": "d",
            "split": "adversarial",
            "id": range(1, len(labels) + 1),
            "image": [f"SCENE_{number // 6:012d}.png" for number in range(len(labels))],
            "question": f"Is there a {name} in the image?",
            "label": [words[letter] for letter in labels],
            "object": name,
        }
    )


def signals(labels: str, given_answers: str, yes: list[float], attention: list[float]) -> pd.DataFrame:
    words = {"y": "yes", "n": "no"}
    return pd.DataFrame(
        {
            "dataset": "d",
            "split": "adversarial",
            "id": range(1, len(labels) + 1),
            "label": [words[letter] for letter in labels],
            "answer": [words[letter] for letter in given_answers],
            "yes_max": np.float32(yes),
            "no_max": np.float32(1.0),
            "attention": np.float32(attention),
        }
    )


def corrections(rows: list[tuple]) -> pd.DataFrame:
    columns = ["method", "beta", "variant", "f1", "precision", "recall", "basis"]
    return pd.DataFrame(rows, columns=columns).assign(study="mini", model="m", split="adversarial")


def encoded_forms(pieces: bool) -> pd.DataFrame:
    rows = []
    words = {"yes": 5081, "Yes": 5592, "no": 708, "No": 1770}
    for form in forms.YES_FORMS + forms.NO_FORMS:
        ids = [words[form.strip()]] if form in words else [28705, words[form.strip()]]
        single = len(ids) == 1
        rows.append(("mini", "mistral", form, json.dumps(ids), single, single, "", "", 0))
    if pieces:
        rows += [
            ("mini", "mistral", "", json.dumps([token]), True, False, "▁something_long", "", 0)
            for token in forms.SURFACES
        ]
    return pd.DataFrame(rows, columns=list(forms.COLUMNS))


def loaded_forms(tmp_path: Path, pieces: bool) -> pd.DataFrame:
    files.write_csv(encoded_forms(pieces), tmp_path / "forms.csv")
    return forms.load(tmp_path / "forms.csv")


# --- what is plotted


def test_path_counts_by_hand():
    # label yes: 5 yes kept, 1 yes lost, 2 no flipped, 2 no kept; label no: 1, 0, 3, 6
    table = transitions((5, 1, 2, 2), (1, 0, 3, 6))
    frame = fig1.data(table, first_tokens(EIGHT | {3869: 6, 1939: 13, 77: 1}), "m", "adversarial")
    value = frame.set_index(["stage", "name"])["value"].to_dict()
    assert [value["emitted", name] for name in ("yes form", "no form", "another token")] == [6, 13, 1]
    assert (value["questions", "all"], value["eight_token", "yes"], value["eight_token", "no"]) == (20, 7, 13)
    assert (value["two_token", "no to yes"], value["two_token", "yes to no"]) == (5, 1)
    assert (value["flipped", "fp"], value["flipped", "tp"]) == (3, 2)
    assert [value["cells two_token", name] for name in ("tp", "fp", "fn", "tn")] == [7, 4, 3, 6]
    assert [value["cells eight_token", name] for name in ("tp", "fp", "fn", "tn")] == [6, 1, 4, 9]
    assert value["f1", "two_token"] == pytest.approx(14 / 21)


def test_confusion_shares_are_of_the_label():
    rows = [
        {"study": "mini", "model": "m", "split": "adversarial", "readout": readout, "tp": 3, "fn": 1, "fp": 0, "tn": 0}
        | {"f1": 0.5}
        for readout in fig2.RULES
    ]
    frame = fig2.data(pd.DataFrame(rows), "m", "adversarial")
    assert frame.loc[frame["readout"] == "legacy_2tok", "share"].tolist() == [0.75, 0.25, 0.0, 0.0]


def test_running_rates_by_hand():
    frame = running.yes_rates(answers("ynyn", "yyyn", "ynnn").sample(frac=1, random_state=1), "mini", "m")
    assert frame["id"].tolist() == [1, 2, 3, 4]
    assert frame["two_token"].tolist() == [1, 1, 1, 0.75]
    assert frame["eight_token"].tolist() == [1, 0.5, 1 / 3, 0.25]
    assert set(frame["label_yes"]) == {0.5}


def test_running_rates_need_both_rules():
    only_one = answers("yn", "yn", "yn").query("readout == 'legacy_2tok'")
    with pytest.raises(BadInput, match="have no readout legacy_8tok"):
        running.yes_rates(only_one, "mini", "m")


def test_the_eight_forms_keep_their_zeros():
    frame = fig5.data(first_tokens(EIGHT | {3869: 2, 99: 5}), "m")
    assert frame["count"].tolist() == [0, 0, 0, 2, 0, 0, 0, 0]
    assert frame["form"].tolist()[:4] == ["yes", "Yes", " yes", " Yes"]
    counts = {token: count for token, count in EIGHT.items() if token != 694}
    with pytest.raises(BadInput, match="no row of token 694"):
        fig5.data(first_tokens(counts), "m")


def test_samples_are_the_first_two_of_each_outcome():
    labels, eight = "ynynynyn", "yyyynnny"
    frame = fig6.data(answers(labels, "y" * 8, eight), items_of(labels), "mini", "m")
    chosen = frame.groupby("outcome", sort=False)["id"].apply(list).to_dict()
    assert chosen == {"TP": [1, 3], "TN": [6], "FP": [2, 4], "FN": [5, 7]}


def test_corrections_prefer_the_variant_and_released_counts():
    rows = corrections(
        [
            ("baseline", 0.0, "as run", 0.80, 0.9, 0.7, "signals"),
            ("entropy_certainty", 1.0, "as run", 0.81, 0.9, 0.7, "signals"),
            ("entropy_certainty", 1.0, "paper", 0.70, 0.9, 0.7, "signals"),
            ("entropy_certainty", 3.0, "as run", 0.99, 0.9, 0.7, "signals"),
            ("uniform", 1.0, "as run", 0.75, 0.9, 0.7, "signals"),
            ("uniform", 1.0, "as run", 0.76, 0.9, 0.7, "released summary"),
        ]
    )
    as_run = fig7.data(rows, "m", "adversarial", "as run")
    assert list(zip(as_run["method"], as_run["f1"], as_run["rank"], strict=True)) == [
        ("entropy_certainty", 0.81, 1),
        ("baseline", 0.80, 2),
        ("uniform", 0.76, 3),
    ]
    paper = fig7.data(rows, "m", "adversarial", "paper")
    assert paper.set_index("method")["f1"].to_dict() == {"baseline": 0.80, "uniform": 0.76, "entropy_certainty": 0.70}
    with pytest.raises(BadInput, match="no row of the baseline"):
        fig7.data(rows[rows["method"] != "baseline"], "m", "adversarial", "as run")


def test_signals_by_outcome_by_hand():
    rows = signals("ynyn", "yynn", [2.0, 1.5, 0.75, 1.0], [0.1, 0.2, 0.3, 0.4])
    gaps = fig9.data(rows, "mini", "m")
    assert list(zip(gaps["outcome"], gaps["value"], strict=True)) == [
        ("TP", 1.0),
        ("FP", 0.5),
        ("FN", 0.25),
        ("TN", 0.0),
    ]
    assert fig8.data(rows, "mini", "m")["value"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    with pytest.raises(BadInput, match="have no attention"):
        fig8.data(rows.drop(columns="attention"), "mini", "m")
    with pytest.raises(BadInput, match=r"row 1 .* answer 'unknown'"):
        outcomes.of(pd.Series(["yes", "no"]), pd.Series(["yes", "unknown"]))


def test_the_map_puts_ids_of_both_vocabularies_side_by_side(tmp_path):
    tokens = pd.concat(
        [first_tokens(EIGHT | {3869: 6}, "llama", SPLITS), first_tokens({5592: 4, 1770: 2}, "mistral", SPLITS)]
    )
    frame = fig10.data(loaded_forms(tmp_path, pieces=True), tokens, ("llama", "mistral"))
    yes = frame.set_index("form").loc["Yes"]
    assert (yes["llama_id"], yes["llama_emitted"], yes["mistral_ids"], yes["mistral_emitted"]) == (
        8241,
        0,
        "[5592]",
        12,
    )
    spaced = frame.set_index("form").loc[" Yes"]
    assert (spaced["llama_id"], spaced["llama_emitted"], spaced["mistral_ids"]) == (3869, 18, "[28705, 5592]")
    assert not spaced["mistral_single"] and spaced["mistral_piece"] == " something_long"
    bare = fig10.data(loaded_forms(tmp_path, pieces=False), tokens, ("llama", "mistral"))
    assert not bare["mistral_piece_known"].any()


def test_a_missing_model_or_a_mixed_study_is_refused():
    table = transitions((1, 0, 0, 0), (0, 0, 0, 1))
    with pytest.raises(BadInput, match="has no rows of model 'other' \\(it has m\\)"):
        fig1.data(table, first_tokens(EIGHT), "other", "adversarial")
    with pytest.raises(BadInput, match="mixes studies"):
        fig5.data(pd.concat([first_tokens(EIGHT), first_tokens(EIGHT).assign(study="released")]), "m")


# --- the drawings, on ordinary and on degenerate data


def stream(rate: float, seed: int, n: int = 600) -> str:
    return "".join("y" if draw < rate else "n" for draw in np.random.default_rng(seed).random(n))


def matrix(**cells: int) -> pd.DataFrame:
    rows = [
        {"study": "mini", "model": "m", "split": "adversarial", "readout": readout, "f1": 2 / 3} | cells
        for readout in fig2.RULES
    ]
    return pd.DataFrame(rows)


def cloud(name: str, n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    labels = "yn" * (n // 2)
    given_answers = {"mixed": stream(0.5, 1, n), "all yes": "y" * n, "right": labels}[name]
    yes = rng.normal(1, 1, n) if name != "right" else np.full(n, 1.0)
    attention = rng.normal(0.08, 0.01, n) if name != "right" else np.full(n, 0.5)
    return signals(labels, given_answers, yes.tolist(), attention.tolist())


METHODS = [name for name in fig7.corrections.METHODS if name != "baseline"]


def spread_corrections(kind: str) -> pd.DataFrame:
    rows = [("baseline", 0.0, "as run", 0.8221, 0.8658, 0.7827, "signals")]
    for number, name in enumerate(METHODS):
        for beta in fig7.corrections.METHODS[name].betas:
            step = number if kind == "apart" else 0
            rows.append((name, beta, "as run", 0.81 - step / 500, 0.90 + step / 400, 0.745 - step / 400, "signals"))
    if kind == "alone":
        rows = rows[:1]
    if kind == "zero":
        rows = [(*row[:3], 0.0, 0.0, 0.0, row[6]) for row in rows]
    if kind == "far":
        rows[1] = (*rows[1][:3], 0.02, 1.0, 0.01, "signals")
        rows[2] = (*rows[2][:3], 0.6667, 0.5, 1.0, "signals")
    return corrections(rows)


def both_rules() -> pd.DataFrame:
    return answers("yn" * 300, stream(0.76, 1), stream(0.45, 2))


def all_splits() -> pd.DataFrame:
    return first_tokens(EIGHT | {3869: 1356, 1939: 1644}, splits=SPLITS)


FLOW = transitions((1174, 0, 264, 62), (182, 0, 660, 658))
ORDINARY = {
    "fig1": lambda: fig1.draw(fig1.data(FLOW, all_splits(), "m", "adversarial")),
    "fig2": lambda: fig2.draw(fig2.data(matrix(tp=1438, fp=842, fn=62, tn=658), "m", "adversarial")),
    "fig3": lambda: fig3.draw(fig3.data(both_rules(), "mini", "m")),
    "fig4": lambda: fig4.draw(fig4.data([both_rules().assign(split=split) for split in SPLITS], "mini", "m")),
    "fig5": lambda: fig5.draw(fig5.data(all_splits(), "m")),
    "fig7": lambda: fig7.draw(fig7.data(spread_corrections("apart"), "m", "adversarial", "as run")),
    "fig8": lambda: fig8.draw(fig8.data(cloud("mixed"), "mini", "m")),
    "fig9": lambda: fig9.draw(fig9.data(cloud("mixed"), "mini", "m")),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_nothing_overlaps(name, monkeypatch):
    assert_clear(ORDINARY[name](), monkeypatch)


@pytest.mark.parametrize("other", [0, 12345])
def test_the_path_has_room_for_large_and_for_empty_counts(other, monkeypatch):
    tokens = first_tokens(EIGHT | {3869: 12345, 1939: 12345, 7: other})
    for flow in (transitions((12345, 12345, 12345, 12345), (12345,) * 4), transitions((0,) * 4, (0,) * 4)):
        assert_clear(fig1.draw(fig1.data(flow, tokens, "m", "adversarial")), monkeypatch)


@pytest.mark.parametrize(
    "cells", [{"tp": 0, "fp": 0, "fn": 0, "tn": 0}, {"tp": 123456, "fp": 123456, "fn": 0, "tn": 0}]
)
def test_matrices_have_room(cells, monkeypatch):
    assert_clear(fig2.draw(fig2.data(matrix(**cells), "m", "adversarial")), monkeypatch)


@pytest.mark.parametrize(
    ("two", "eight"), [("y" * 60, "y" * 60), ("n" * 60, "n" * 60), ("yn" * 30, "yn" * 30), ("y", "n")]
)
def test_equal_and_extreme_rates_are_still_readable(two, eight, monkeypatch):
    rows = answers(("yn" * 30)[: len(two)], two, eight)
    assert_clear(fig3.draw(fig3.data(rows, "mini", "m")), monkeypatch)
    assert_clear(fig4.draw(fig4.data([rows], "mini", "m")), monkeypatch)


@pytest.mark.parametrize("counts", [{}, {3582: 1}, dict.fromkeys(forms.SURFACES, 1234)])
@pytest.mark.parametrize("splits", [SPLITS, ("popular",)])
def test_forms_of_any_frequency_are_readable(counts, splits, monkeypatch):
    assert_clear(fig5.draw(fig5.data(first_tokens(EIGHT | counts, splits=splits), "m")), monkeypatch)


@pytest.mark.parametrize("long", [False, True])
def test_questions_without_images_say_so(long, monkeypatch):
    labels = "yn" * 8
    frame = fig6.data(answers(labels, "yn" * 8, "yynn" * 4), items_of(labels, long), "mini", "m")
    figure = fig6.draw(frame, None)
    assert_clear(figure, monkeypatch)
    assert sum("no image in this study" in text.get_text() for text in drawn_texts(figure, monkeypatch)) == 8


def test_questions_are_drawn_with_their_own_images(tmp_path, monkeypatch):
    labels = "yn" * 8
    frame = fig6.data(answers(labels, "yn" * 8, "yn" * 8), items_of(labels), "mini", "m")
    for number, name in enumerate(sorted(set(frame["image"]))):
        pixels = np.full((48, 48, 3), (number + 1) / 10)
        matplotlib.image.imsave(tmp_path / name, pixels)
    figure = fig6.draw(frame, tmp_path)
    assert_clear(figure, monkeypatch)
    shown = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(shown) == len(frame) == 4
    empty = sum("no further question" in text.get_text() for text in drawn_texts(figure, monkeypatch))
    assert empty == 4
    (tmp_path / frame["image"].iloc[0]).unlink()
    with pytest.raises(BadInput, match=r"image .*SCENE_0+\.png is missing"):
        fig6.draw(frame, tmp_path)


@pytest.mark.parametrize("kind", ["apart", "together", "alone", "zero", "far"])
def test_corrections_are_readable_wherever_they_lie(kind, monkeypatch):
    frame = fig7.data(spread_corrections(kind), "m", "adversarial", "as run")
    assert len(frame) == (1 if kind == "alone" else len(METHODS) + 2)
    assert_clear(fig7.draw(frame), monkeypatch)


@pytest.mark.parametrize("name", ["mixed", "all yes", "right"])
@pytest.mark.parametrize("module", [fig8, fig9])
def test_empty_groups_and_constant_signals_are_labelled(module, name, monkeypatch):
    figure = module.draw(module.data(cloud(name), "mini", "m"))
    assert_clear(figure, monkeypatch)
    texts = " ".join(text.get_text() for text in drawn_texts(figure, monkeypatch))
    assert "nan" not in texts
    assert ("none" in texts) == (name != "mixed")


@pytest.mark.parametrize("pieces", [False, True])
def test_the_map_is_readable(pieces, tmp_path, monkeypatch):
    tokens = pd.concat(
        [first_tokens(EIGHT | {3869: 12345}, "llama"), first_tokens({5592: 12345, 1770: 12345}, "mistral")]
    )
    frame = fig10.data(loaded_forms(tmp_path, pieces), tokens, ("llama", "mistral"))
    assert_clear(fig10.draw(frame), monkeypatch)


@pytest.mark.parametrize("name", ORDINARY)
def test_same_data_same_bytes_whatever_the_settings(name, tmp_path):
    for run, size in (("a", 8), ("b", 20)):
        with matplotlib.rc_context({"font.size": size, "pdf.fonttype": 3}):
            style.save(ORDINARY[name](), tmp_path / f"{run}.pdf", tmp_path / f"{run}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    content = (tmp_path / "a.pdf").read_bytes()
    assert content == (tmp_path / "b.pdf").read_bytes()
    assert b"/Type0" in content and b"/Type3" not in content and b"CreationDate" not in content


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError):
        style.save(Broken(figsize=(1, 1)), tmp_path / "a.pdf", tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


class Broken(Figure):
    """A figure whose writing fails half way."""

    def savefig(self, fname, **named):
        Path(fname).write_bytes(b"%PDF-")
        raise RuntimeError("disk full")
