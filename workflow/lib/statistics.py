"""Frames of statistics from frames of answers: one function a result file, rows in the order of the study.

Rows are matched by key, never by position. Counting is left to `workflow.lib.metrics`; what stands here is
which rows belong together.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from workflow.lib import answers, items, metrics
from workflow.lib.errors import BadInput
from workflow.lib.metrics import Confusion, ProtocolGap
from workflow.lib.readouts import REGISTRY
from workflow.lib.tokens import LEGACY_8TOK, TokenSet

REFERENCE, TESTED = "legacy_8tok", "legacy_2tok"
"""The readouts of Eq. (1): the one that keeps the generated decision, and the one under audit."""

# fmt: off
COUNTS = ("tp", "fp", "fn", "tn", "unknown_yes", "unknown_no")
CONFUSION_COLUMNS = (
    "study", "model", "split", "readout", "basis", "n", *COUNTS, "f1", "precision", "recall", "yes_rate",
    "accuracy", "f1_answered", "recall_answered", "accuracy_answered", "yes_rate_answered", "degenerate",
    "uncovered",
)
FIRST_TOKEN_COLUMNS = ("study", "model", "split", "token_id", "text", "count", "n")
TRANSITION_COLUMNS = (
    "study", "model", "split", "label", "reference", "tested", "yes_yes", "yes_no", "no_yes", "no_no",
    "unknown", "rate", "numerator", "denominator", "value", "degenerate",
)
PROTOCOL_GAP_COLUMNS = (
    "study", "model", "split", "p", "n", "t", "g", "g_tot", "rho_n", "phi", "f1_reference", "f1_tested",
    "gap", "f1_tested_closed_form", "gap_closed_form", "f1_lower_bound", "pooled_flip_rate", "yes_to_no",
    "condition_holds", "rates_from", "f1_transplanted", "degenerate",
)
CONSISTENCY_COLUMNS = (
    "study", "model", "split_a", "split_b", "label", "typo", "shared", "differ_emitted",
    "differ_two_token_only", "differ",
)
DIFFERENCE_COLUMNS = (
    "study", "model", "split_a", "split_b", "image", "question_a", "question_b", "label", "typo", "id_a",
    "id_b", "emitted_id_a", "emitted_id_b", "two_token_a", "two_token_b",
)
# fmt: on

_KEY = ["dataset", "split", "id"]
_QUESTION = [*_KEY, "label", "emitted_id", "emitted_text"]
_MISSPELT = re.compile(r"\bimange\b")


@dataclass(frozen=True)
class Study:
    """Name of a study and the order of its models, splits and readouts, which is the order of all rows."""

    name: str
    models: Sequence[str]
    splits: Sequence[str]
    readouts: Sequence[str]


@dataclass(frozen=True)
class AnswerSet:
    """All answers of one model on one split.

    Attributes
    ----------
    source : str
        File name, for messages.
    study, model, split, basis : str
        ``basis`` says what the answers were read from: "logits" or "released records".
    candidate_ids : tuple of int
        Declared candidate ids; the eight-token set where the file does not say.
    candidate_texts : dict of int to str
        Decoded text of candidates, as far as the file says.
    frame : pandas.DataFrame
        One row per (question, readout): dataset, split, id, label, emitted_id, emitted_text, readout, answer.
    dynamic : TokenSet or None
        The set of the model's own tokenizer, where the file says it.
    """

    source: str
    study: str
    model: str
    split: str
    basis: str
    candidate_ids: tuple[int, ...]
    candidate_texts: dict[int, str]
    frame: pd.DataFrame
    dynamic: TokenSet | None = None

    def __post_init__(self) -> None:
        frame, keys = self.frame, [*_KEY, "readout"]
        for column in (*_QUESTION, "readout", "answer"):
            if column not in frame:
                raise BadInput(f"{self.source} has no column {column!r}: read the answers again.")
            if frame[column].isna().any():
                row = int(frame[column].isna().to_numpy().argmax())
                raise BadInput(f"{self.source} row {row}: {column} is missing (null): read the answers again.")
        if (frame["split"] != self.split).any():
            other = frame.loc[frame["split"] != self.split, "split"].iloc[0]
            raise BadInput(f"{self.source} holds split {other!r} beside {self.split!r}: one file holds one split.")
        if frame.duplicated(keys).any():
            row = frame.loc[frame.duplicated(keys)].iloc[0]
            raise BadInput(
                f"{self.source}: question {row['id']} has more than one answer of readout {row['readout']}: "
                "read the answers again."
            )
        # every readout must see the same questions, with the same label and the same emitted token
        if len(frame) != len(frame[_QUESTION].drop_duplicates()) * frame["readout"].nunique():
            raise BadInput(
                f"{self.source}: its readouts do not answer the same questions with the same labels and "
                "emitted tokens: read the answers again."
            )

    def questions(self) -> pd.DataFrame:
        """Return one row a question: key, label, emitted_id, emitted_text."""
        return self.frame[_QUESTION].drop_duplicates(ignore_index=True)

    def with_answers(self, **readouts: str) -> pd.DataFrame:
        """Return the questions with one column of answers for each ``column=readout``."""
        joined = self.questions()
        for column, readout in readouts.items():
            rows = self.frame.loc[self.frame["readout"] == readout, [*_KEY, "answer"]]
            if rows.empty and len(joined):
                raise BadInput(
                    f"{self.source} has no answers of readout {readout} (it has "
                    f"{', '.join(self.frame['readout'].unique())}): put it among readouts.names of the "
                    "configuration."
                )
            joined = joined.merge(rows.rename(columns={"answer": column}), on=_KEY, validate="one_to_one")
        return joined


def load_answers(path: str | Path) -> AnswerSet:
    """Read the answers of one model on one split.

    Raises
    ------
    BadInput
        Where the file is no Parquet file, lacks its metadata or breaks the layout of answers.
    """
    frame, metadata = answers.load(path)
    for name in ("study", "model", "basis"):
        if name not in metadata:
            raise BadInput(f"{path} lacks {name} in its metadata: read the answers again.")
    if frame.empty:
        raise BadInput(f"{path} holds no answer: read the answers again.")
    return AnswerSet(
        str(path),
        metadata["study"],
        metadata["model"],
        str(frame["split"].iloc[0]),
        metadata["basis"],
        tuple(metadata.get("candidate_ids", LEGACY_8TOK.ids)),
        {int(token): text for token, text in metadata.get("candidate_texts", {}).items()},
        frame,
        TokenSet(**metadata["dynamic"]) if metadata.get("dynamic") else None,
    )


def load_items(paths: Iterable[str | Path]) -> pd.DataFrame:
    """Read the items of several splits into one frame."""
    return pd.concat([items.load(path)[0].to_pandas() for path in paths], ignore_index=True)


def _ordered(sets: Iterable[AnswerSet], study: Study) -> list[AnswerSet]:
    """Return the sets by model and split in the study's order; refuse what does not belong to the study."""
    found: dict[tuple[str, str], AnswerSet] = {}
    for held in sets:
        if held.study != study.name:
            raise BadInput(
                f"{held.source} belongs to study {held.study!r}, not to {study.name!r}: keep each study in "
                "its own folder."
            )
        if (held.model, held.split) in found:
            raise BadInput(
                f"{held.source} and {found[held.model, held.split].source} both answer for model "
                f"{held.model}, split {held.split}: give each once."
            )
        found[held.model, held.split] = held
    _check_known(found, study, "answers")
    return [found[key] for key in itertools.product(study.models, study.splits) if key in found]


def _check_known(keys: Iterable[tuple[str, ...]], study: Study, what: str) -> None:
    for model, split, *_ in keys:
        for kind, name, known in (("model", model, study.models), ("split", split, study.splits)):
            if name not in known:
                raise BadInput(
                    f"{what} of {kind} {name!r} do not belong to study {study.name!r} (its {kind}s: "
                    f"{', '.join(known)}): remove them or name it in the configuration."
                )


def confusion_table(sets: Iterable[AnswerSet], counts: Iterable[pd.DataFrame], study: Study) -> pd.DataFrame:
    """Return confusion counts and both conventions of metrics per (model, split, readout).

    Parameters
    ----------
    sets : iterable of AnswerSet
        Counted here.
    counts : iterable of pandas.DataFrame
        Counts known without answers: model, split, readout, tp, fp, fn, tn, unknown_yes, unknown_no, basis.
    study : Study
        Readouts that are not among ``study.readouts`` are left out.

    Returns
    -------
    pandas.DataFrame
        Columns `CONFUSION_COLUMNS`. ``uncovered`` counts the questions whose emitted first token the readout's token
        set does not hold, so that the readout compared tokens which the model did not choose (Algorithm 1); it is
        empty for string readouts and where no answers are known.
    """
    found: dict[tuple[str, str, str], tuple[str, Confusion]] = {}
    uncovered: dict[tuple[str, str, str], int] = {}
    for held in _ordered(sets, study):
        for readout, rows in held.frame.groupby("readout", sort=False):
            key = held.model, held.split, readout
            found[key] = held.basis, metrics.confusion(rows["label"], rows["answer"])
            token_set = _token_set(readout, held.dynamic)
            if token_set:
                uncovered[key] = int((~rows["emitted_id"].isin(token_set.ids)).sum())
    for frame in counts:
        missing = [name for name in ("model", "split", "readout", *COUNTS, "basis") if name not in frame]
        if missing:
            raise BadInput(f"a table of counts has no column {missing[0]!r}: rebuild it.")
        for row in frame.to_dict("records"):
            key = row["model"], row["split"], row["readout"]
            if key in found:
                raise BadInput(
                    f"model {key[0]}, split {key[1]}, readout {key[2]} has both answers and published "
                    "counts, or counts twice: keep one of them."
                )
            found[key] = row["basis"], Confusion(**{name: row[name] for name in COUNTS})
    _check_known(found, study, "counts")
    rows = []
    for key in itertools.product(study.models, study.splits, study.readouts):
        if key in found:
            basis, counted = found[key]
            held_names = dict(
                zip(("study", "model", "split", "readout", "basis"), (study.name, *key, basis), strict=True)
            )
            measured = CONFUSION_COLUMNS[len(held_names) : -1]
            measures = {name: getattr(counted, name) for name in measured}
            rows.append(held_names | measures | {"uncovered": uncovered.get(key, "")})
    return pd.DataFrame(rows, columns=list(CONFUSION_COLUMNS))


def _token_set(name: str, dynamic: TokenSet | None) -> TokenSet | None:
    readout = REGISTRY.get(name)
    if readout is None or readout.kind != "token_set":
        return None
    return dynamic if readout.token_set == "dynamic" else readout.token_set


def first_token_table(sets: Iterable[AnswerSet], study: Study) -> pd.DataFrame:
    """Return how often each token is emitted first: every candidate, also at 0, and every emitted id.

    Sorted by id within a model and split. ``text`` is the decoded token as far as it is known, else "".
    """
    rows = []
    for held in _ordered(sets, study):
        questions = held.questions()
        count = questions["emitted_id"].value_counts()
        texts = held.candidate_texts | dict(zip(questions["emitted_id"], questions["emitted_text"], strict=True))
        for token in sorted({*held.candidate_ids, *(int(token) for token in count.index)}):
            values = (
                study.name,
                held.model,
                held.split,
                token,
                texts.get(token, ""),
                int(count.get(token, 0)),
                len(questions),
            )
            rows.append(dict(zip(FIRST_TOKEN_COLUMNS, values, strict=True)))
    return pd.DataFrame(rows, columns=list(FIRST_TOKEN_COLUMNS))


def _gap(held: AnswerSet) -> ProtocolGap:
    paired = held.with_answers(reference=REFERENCE, tested=TESTED)
    return metrics.protocol_gap(paired["label"], paired["reference"], paired["tested"])


def transition_table(sets: Iterable[AnswerSet], study: Study) -> pd.DataFrame:
    """Return the paired transitions from the eight-token to the two-token rule, one row a label (Table 7)."""
    rows = []
    for held in _ordered(sets, study):
        gap = _gap(held)
        for row in (gap.yes, gap.no):
            fixed = {
                "study": study.name,
                "model": held.model,
                "split": held.split,
                "reference": REFERENCE,
                "tested": TESTED,
            }
            rows.append(fixed | {name: getattr(row, name) for name in TRANSITION_COLUMNS if name not in fixed})
    return pd.DataFrame(rows, columns=list(TRANSITION_COLUMNS))


def protocol_gap_table(sets: Iterable[AnswerSet], study: Study) -> pd.DataFrame:
    """Return Eq. (1) per model and split: counted F1 of both rules, the closed form and what it rests on.

    ``f1_transplanted`` is the closed form with the rates of split ``rates_from``, the model's first split:
    rates do not transfer between splits (Section 3.4). The closed form equals ``f1_tested`` exactly where
    ``condition_holds``. ``degenerate`` names a rate without a denominator; it stands as 0 then.
    """
    rows = []
    first: dict[str, tuple[str, ProtocolGap]] = {}
    for held in _ordered(sets, study):
        gap = _gap(held)
        rates_from, donor = first.setdefault(held.model, (held.split, gap))
        p, n, t, g = gap.counts
        values = {
            "study": study.name,
            "model": held.model,
            "split": held.split,
            "p": p,
            "n": n,
            "t": t,
            "g": g,
            "rho_n": gap.no.value,
            "phi": gap.yes.value,
            "gap": gap.f1_reference - gap.f1_tested,
            "gap_closed_form": gap.f1_reference - gap.f1_tested_closed_form,
            "rates_from": rates_from,
            "f1_transplanted": gap.f1_transplanted(donor),
        }
        rows.append(values | {name: getattr(gap, name) for name in PROTOCOL_GAP_COLUMNS if name not in values})
    return pd.DataFrame(rows, columns=list(PROTOCOL_GAP_COLUMNS))


def normalised_question(question: str) -> str:
    """Return the question with the misspelling "imange" of one POPE revision mended."""
    return _MISSPELT.sub("image", question)


class SplitPair(NamedTuple):
    """The questions that two splits of one model share, one row each.

    ``rows`` has label, typo, and of either split (``_a``, ``_b``) id, question, emitted_id and two_token
    answer; and differ_emitted (another first token), differ_two_token_only (the same token, another two-token
    answer), differ (either).
    """

    model: str
    split_a: str
    split_b: str
    rows: pd.DataFrame


def shared_questions(sets: Iterable[AnswerSet], questions: pd.DataFrame, study: Study) -> list[SplitPair]:
    """Pair the questions that two splits share, for every model and every two of its splits.

    Two rows are the same question where dataset, image and text are equal, the misspelt "imange" read as
    "image"; ``typo`` marks pairs whose spelled texts differ. A question that a split asks several times is
    paired first with first, second with second.

    Parameters
    ----------
    sets : iterable of AnswerSet
        With answers of the two-token rule.
    questions : pandas.DataFrame
        Items of all splits: dataset, split, id, image, question, label.
    study : Study

    Raises
    ------
    BadInput
        Answers without an item or with another label; one question with two labels.
    """
    tables: dict[tuple[str, str], pd.DataFrame] = {}
    for held in _ordered(sets, study):
        tables[held.model, held.split] = _with_items(held, questions)
    match = ["dataset", "image", "normalised", "occurrence"]
    pairs = []
    for model in study.models:
        for a, b in itertools.combinations([split for split in study.splits if (model, split) in tables], 2):
            rows = tables[model, a].merge(tables[model, b], on=match, suffixes=("_a", "_b"), validate="one_to_one")
            contradicting = rows["label_a"] != rows["label_b"]
            if contradicting.any():
                row = rows.loc[contradicting].iloc[0]
                raise BadInput(
                    f"{row['image']}: {row['normalised']!r} has label {row['label_a']} in split {a} (id "
                    f"{row['id_a']}) and {row['label_b']} in split {b} (id {row['id_b']}): correct the "
                    "question files."
                )
            rows = rows.rename(columns={"label_a": "label"}).drop(columns="label_b")
            rows["typo"] = rows["question_a"] != rows["question_b"]
            rows["differ_emitted"] = rows["emitted_id_a"] != rows["emitted_id_b"]
            rows["differ_two_token_only"] = ~rows["differ_emitted"] & (rows["two_token_a"] != rows["two_token_b"])
            rows["differ"] = rows["differ_emitted"] | rows["differ_two_token_only"]
            pairs.append(SplitPair(model, a, b, rows))
    return pairs


def _with_items(held: AnswerSet, questions: pd.DataFrame) -> pd.DataFrame:
    asked = questions.loc[questions["split"] == held.split, [*_KEY, "image", "question", "label"]]
    answered = held.with_answers(two_token=TESTED)
    both = answered.merge(asked, on=_KEY, how="outer", suffixes=("", "_asked"), indicator=True, validate="one_to_one")
    for side, what in (("left_only", "is answered but not among the items"), ("right_only", "has no answer")):
        if (both["_merge"] == side).any():
            row = both.loc[both["_merge"] == side].iloc[0]
            raise BadInput(
                f"{held.source}: question {row['id']} of split {held.split} {what}: answers and items must "
                "come from the same question file, so read the answers again."
            )
    if (both["label"] != both["label_asked"]).any():
        row = both.loc[both["label"] != both["label_asked"]].iloc[0]
        raise BadInput(
            f"{held.source}: question {row['id']} of split {held.split} has label {row['label']} in the "
            f"answers and {row['label_asked']} in the items: answers and items must come from the same "
            "question file."
        )
    both = both.sort_values("id", kind="stable", ignore_index=True)
    both["normalised"] = both["question"].map(normalised_question)
    both["occurrence"] = both.groupby(["dataset", "image", "normalised"]).cumcount()
    return both[["dataset", "id", "image", "question", "normalised", "occurrence", "label", "emitted_id", "two_token"]]


def split_consistency_table(pairs: Iterable[SplitPair], study: Study) -> pd.DataFrame:
    """Count the questions that two splits share and answer differently.

    Returns
    -------
    pandas.DataFrame
        Columns `CONSISTENCY_COLUMNS`; for each model and pair of splits four rows, label yes and no, typo
        false and true, also where nothing is shared.
    """
    rows = []
    for model, split_a, split_b, shared in pairs:
        for label, typo in itertools.product(metrics.LABELS, (False, True)):
            cell = shared[(shared["label"] == label) & (shared["typo"] == typo)]
            differing = (int(cell[name].sum()) for name in ("differ_emitted", "differ_two_token_only", "differ"))
            values = study.name, model, split_a, split_b, label, typo, len(cell), *differing
            rows.append(dict(zip(CONSISTENCY_COLUMNS, values, strict=True)))
    return pd.DataFrame(rows, columns=list(CONSISTENCY_COLUMNS))


def split_differences(pairs: Iterable[SplitPair], study: Study) -> pd.DataFrame:
    """List every shared question that two splits answer differently; columns `DIFFERENCE_COLUMNS`."""
    listed = [
        shared[shared["differ"]].assign(study=study.name, model=model, split_a=split_a, split_b=split_b)
        for model, split_a, split_b, shared in pairs
    ]
    empty = pd.DataFrame(columns=list(DIFFERENCE_COLUMNS))
    return pd.concat(listed, ignore_index=True)[list(DIFFERENCE_COLUMNS)] if listed else empty
