"""Numbers that stand in the first paper's running text and in no table or statistics file of their own.

Each is computed from result files. A number that a study has no data for is left out, so that the ledger says that
there is no row of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workflow.lib import corrections, diagnostic, forms, logits, margins
from workflow.lib.errors import BadInput
from workflow.lib.figures import running
from workflow.lib.forms import SURFACES
from workflow.lib.tables.table4 import READOUTS
from workflow.lib.tokens import LEGACY_2TOK, LEGACY_8TOK

COLUMNS = ("study", "name", "value")
TWO, EIGHT, DYNAMIC = "legacy_2tok", "legacy_8tok", "dynamic_single"
OTHER_VOCABULARY = ("llava16_mistral", "qwen2_vl")
"""Models whose vocabulary is not LLaMA's."""
SECONDS_A_QUESTION = 0.508
"""Reported for the authors' machine (Section 3.1); only the product with the number of questions is computed."""
SETTLED = 0.01
"""A running rate has settled where it stays within this of its last value: one unit of the second decimal."""
BITS = {"nf4": 4}
"""Bits of a stored weight by quantisation."""
PATCHES = {"width": 336, "patch": 14}
"""Pixels of an image and of a patch in the vision tower's name, CLIP-ViT-L/14-336."""

Numbers = Iterator[tuple[str, float | None]]


@dataclass(frozen=True)
class Settings:
    """What the configuration says that the text states too; None where a study runs no model.

    ``family`` is the printed name of each model with its tokenizer in brackets.
    """

    family: Mapping[str, str]
    seed: int | None = None
    quantisation: str | None = None


def table(
    study: str,
    audited: str,
    confusion: pd.DataFrame,
    first_tokens: pd.DataFrame,
    transitions: pd.DataFrame,
    signal_tests: pd.DataFrame,
    instrumented: pd.DataFrame,
    table8: pd.DataFrame,
    encoded: pd.DataFrame,
    answers: pd.DataFrame,
    signals: tuple[pd.DataFrame, Mapping],
    settings: Settings,
) -> pd.DataFrame:
    """Compute all numbers that the given files allow.

    Parameters
    ----------
    study, audited : str
        Study, and the model that the first paper audits.
    confusion, first_tokens, transitions, signal_tests, instrumented : pandas.DataFrame
        ``statistics/confusion.csv`` and so on; ``instrumented`` is ``instrumented_pass.csv``.
    table8 : pandas.DataFrame
        ``tables/table8.csv``.
    encoded : pandas.DataFrame
        Forms of the model that Table 10 is about (`forms.load`).
    answers : pandas.DataFrame
        Answers of the audited model on the split of Figure 3.
    signals : (signals, metadata)
        Of the instrumented pass, as `workflow.lib.signals.load` returns them.
    settings : Settings

    Returns
    -------
    pandas.DataFrame
        Columns `COLUMNS`, one row a number.
    """
    counted = confusion[confusion["model"] == audited]
    if counted.empty:
        raise BadInput(f"statistics/confusion.csv has no row of model {audited}: add it to run.models.")
    found: dict[str, float] = {}
    for part in (
        _questions(confusion, audited),
        _emissions(first_tokens[first_tokens["model"] == audited]),
        _transitions(transitions[transitions["model"] == audited]),
        _protocols(counted),
        _models(confusion, settings.family),
        _corrections(table8),
        _signals(signal_tests),
        _instrumented(instrumented, *signals),
        _forms(encoded),
        _running(answers, study, audited),
        _settings(settings),
    ):
        for name, value in part:
            if name in found:
                raise ValueError(f"inline number {name} is computed twice")
            if value is not None:
                found[name] = float(value)
    return pd.DataFrame([(study, *pair) for pair in found.items()], columns=list(COLUMNS))


def _only(values: Iterable) -> float | None:
    """Return the one value that all have, None where they differ."""
    unlike = set(values)
    return unlike.pop() if len(unlike) == 1 else None


def _questions(confusion: pd.DataFrame, audited: str) -> Numbers:
    sizes = confusion.groupby(["model", "split"], sort=False)["n"].first()
    totals = sizes.groupby("model").sum()
    yield "splits", len(sizes[audited])
    yield "questions.split", _only(sizes)
    yield "questions.audited", totals[audited]
    yield "questions.model", _only(totals)
    yield "minutes.reported_speed", SECONDS_A_QUESTION * totals[audited] / 60
    counted = confusion[(confusion["model"] == audited) & (confusion["readout"] == EIGHT)]
    positives = counted["tp"] + counted["fn"] + counted["unknown_yes"]
    yield "percent.label_yes", _only(100 * positives / counted["n"])
    yield "percent.label_no", _only(100 - 100 * positives / counted["n"])
    yield "share.label_yes", _only(positives / counted["n"])


def _emissions(rows: pd.DataFrame) -> Numbers:
    counts = rows.groupby("token_id")["count"].sum()
    emitted = set(counts.index[counts > 0])
    declared = set(LEGACY_8TOK.ids)
    yield "ids.two_token", len(LEGACY_2TOK.ids)
    yield "ids.eight_token", len(LEGACY_8TOK.ids)
    yield "ids.eight_token.side", _only([len(LEGACY_8TOK.yes), len(LEGACY_8TOK.no)])
    # a word with and without a space before it
    yield "ids.word", _only(Counter(form.strip() for form in SURFACES.values()).values())
    yield "ids.emitted", len(emitted)
    yield "ids.never_emitted", len(declared - emitted)
    yield "emissions.other_ids", counts.drop(list(emitted & declared)).sum()
    yield "emissions.two_token_ids", counts.reindex(LEGACY_2TOK.ids, fill_value=0).sum()
    for side, ids in (("yes", LEGACY_8TOK.yes), ("no", LEGACY_8TOK.no)):
        yield f"id.emitted_{side}", _only(sorted(emitted & set(ids)))
    for token, form in SURFACES.items():
        yield f"id.{form.replace(' ', 'spaced_')}", token


def _transitions(rows: pd.DataFrame) -> Numbers:
    yield "yes_to_yes", rows["yes_yes"].sum()
    yield "yes_to_no", rows["yes_no"].sum()
    yield "phi.mean", rows.loc[rows["label"] == "yes", "value"].mean()
    by_label = rows[rows["label"] == "no"]["value"]
    yield from (("rho_n.least", by_label.min()), ("rho_n.largest", by_label.max()))
    for split, both in rows.groupby("split", sort=False):
        agreed = both["yes_yes"].sum() + both["no_no"].sum()
        asked = both[["yes_yes", "yes_no", "no_yes", "no_no", "unknown"]].to_numpy().sum()
        yield f"flips.{split}", both["no_yes"].sum()
        yield f"no_answers.{split}", both["no_yes"].sum() + both["no_no"].sum()
        yield f"agreement.{split}", agreed
        yield f"agreement_rate.{split}", agreed / asked if asked else None


def _protocols(rows: pd.DataFrame) -> Numbers:
    rates = {}
    for row in rows[rows["readout"].isin([TWO, EIGHT])].itertuples():
        name = f"{row.readout}.{row.split}"
        yield f"f1_numerator.{name}", 2 * row.tp
        yield f"f1_denominator.{name}", 2 * row.tp + row.fp + row.fn + row.unknown_yes
        yield f"f1_points.{name}", 100 * row.f1
        if row.readout == EIGHT:
            negatives = row.fp + row.tn + row.unknown_no
            yield f"false_positives.{row.split}", row.fp
            yield f"negatives.{row.split}", negatives
            rates[row.split] = row.fp / negatives if negatives else None
            yield f"false_positive_rate.{row.split}", rates[row.split]
    if rates.get("random") and rates.get("adversarial"):
        yield "false_positive_ratio", rates["adversarial"] / rates["random"]


def _models(confusion: pd.DataFrame, family: Mapping[str, str]) -> Numbers:
    models = list(dict.fromkeys(confusion["model"]))
    yield "models", len(models)
    yield "models.further", len(models) - 1
    yield "readouts", len(READOUTS)
    # "LLaMA" and "LLaMA-2" are one family of tokenizers
    named = [family[model].rpartition("(")[2].rstrip(")") for model in models]
    yield "tokenizer_families", len({name.partition("-")[0] for name in named})
    dynamic = confusion[confusion["readout"] == DYNAMIC]
    for name, rows in (("", dynamic), (".instructblip", dynamic[dynamic["model"] == "instructblip"])):
        if len(rows):
            yield f"dynamic_single{name}.least", rows["f1"].min()
            yield f"dynamic_single{name}.largest", rows["f1"].max()
    foreign = confusion[(confusion["readout"] == EIGHT) & confusion["model"].isin(OTHER_VOCABULARY)]
    if len(foreign):
        yield "legacy_8tok.other_vocabulary", foreign["f1"].max()


def _corrections(table8: pd.DataFrame) -> Numbers:
    methods = [method for method in corrections.METHODS.values() if method.kind != "baseline"]
    tabled = [method for method in methods if method.tabled]
    yield "corrections.listed", len(methods)
    yield "corrections.with_row", len(tabled)
    yield "corrections.gates", sum(any(method.reads.values()) for method in tabled if method.kind == "gate")
    yield "corrections.uniform", sum(not any(method.reads.values()) for method in methods)
    yield "corrections.contrasts", sum(method.kind == "contrast" for method in methods)
    known = table8[table8["f1"].astype(str) != ""].set_index("method")
    if "baseline" not in known.index:
        return
    known = known[["beta", "f1", "precision", "recall"]].astype(float)
    baseline, tried = known.loc["baseline"], known.drop(index="baseline")
    gain, cost = 100 * (tried["precision"] - baseline["precision"]), 100 * (baseline["recall"] - tried["recall"])
    if len(tried):
        yield "precision_gain.largest", gain.max()
        yield "recall_cost.largest", cost.max()
        yield "f1_loss.least", (baseline["f1"] - tried["f1"]).min()
    if len(known) == len(table8):
        yield "precision_gain.least", gain.min()
        yield "recall_cost.least", cost.min()
    clip = tried[tried.index == "clip_b_certainty"]
    if len(clip):
        yield "beta.clip_b_certainty.least", clip["beta"].min()
        yield "beta.clip_b_certainty.largest", clip["beta"].max()


def _signals(tests: pd.DataFrame) -> Numbers:
    measured = tests[tests["p"].astype(str) != ""]
    yield "signals.compared", measured["signal"].nunique()
    yield "tests", len(measured)
    for row in measured.itertuples():
        if (row.group_a, row.group_b) == ("correct", "wrong") and str(row.d) not in ("", "0.0"):
            yield f"pooled_sd.{row.signal}", float(row.difference) / float(row.d)


def _instrumented(instrumented: pd.DataFrame, frame: pd.DataFrame, metadata: Mapping) -> Numbers:
    if metadata.get("layers"):
        # half open, counted from 0
        first, end = metadata["layers"]
        yield from (("layers.first", first), ("layers.last", end - 1))
    if metadata["basis"] == "released records":
        # every record was checked against it
        yield "image_positions", diagnostic.VISUAL_SPAN[1] - diagnostic.VISUAL_SPAN[0]
    yield "clip_l_patches", (PATCHES["width"] // PATCHES["patch"]) ** 2
    row = instrumented[(instrumented["model"] == metadata["model"]) & (instrumented["split"] == metadata["split"])]
    listed = str(row["differing_ids"].iloc[0]).split() if len(row) else []
    by_id = frame.set_index("id")
    for place, question in enumerate(listed[:2], 1):
        name = f"differing_id.{place}"
        yes, no = (float(by_id.loc[int(question), column]) for column in ("yes_max", "no_max"))
        yield from ((name, int(question)), (f"{name}.yes_max", yes), (f"{name}.no_max", no))
        yield f"{name}.margin", yes - no
        yield f"{name}.steps", (yes - no) / float(margins.step(np.array(no), "float16"))


def _forms(encoded: pd.DataFrame) -> Numbers:
    rows = forms.by_form(encoded, "the table of forms")
    several = rows[~rows["single"]]
    yield "forms.encoded", len(rows)
    yield "forms.multi_token", len(several)
    yield "forms.multi_token.tokens", _only(several["ids"].map(len))
    yield "forms.multi_token.first_id", _only([ids[0] for ids in several["ids"]])
    for form, ids in zip(several["form"], several["ids"], strict=True):
        yield f"forms.{form.replace(' ', 'spaced_')}.first_id", ids[0]


def _running(answers: pd.DataFrame, study: str, model: str) -> Numbers:
    rates = running.yes_rates(answers, study, model)
    for column in running.READOUTS:
        away = (rates[column] - rates[column].iloc[-1]).abs() > SETTLED
        yield f"running.{column}.last", rates[column].iloc[-1]
        # the question after the last one at which it was away
        yield f"running.{column}.settled", away.to_numpy().nonzero()[0].max(initial=-1) + 2
        if len(rates) >= 600:
            yield f"running.{column}.at_600", rates[column].iloc[599]


def _settings(settings: Settings) -> Numbers:
    yield "generated_tokens", logits.GENERATED
    yield "seed", settings.seed
    yield "weight_bits", BITS.get(settings.quantisation)
