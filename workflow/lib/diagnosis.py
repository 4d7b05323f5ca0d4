"""The new-model diagnostic: does a token set cover what a model emits? (Algorithm 1, lines 1-9)

Before a fixed token set is used on a new pairing of model and prompt template, the first tokens of a sample of
questions are looked at. Ids that the set does not hold are listed with what they decode to, and the set that
would hold them is proposed. The same look at all questions gives the check of Theorem 1 on stored answers.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple

import pandas as pd

from workflow.lib import parsers, readouts
from workflow.lib.statistics import AnswerSet
from workflow.lib.tokens import TokenSet

DIAGNOSTIC_COLUMNS = (
    "study",
    "model",
    "template",
    "split",
    "questions",
    "readout",
    "token_id",
    "text",
    "count",
    "covered",
    "side",
    "covered_share",
    "proposed_yes",
    "proposed_no",
)
AGREEMENT_COLUMNS = (
    "study",
    "model",
    "split",
    "readout",
    "n",
    "agree",
    "covered",
    "tied",
    "agree_untied",
    "theorem_holds",
)


def token_sets(names: Iterable[str], dynamic: TokenSet | None) -> dict[str, TokenSet]:
    """Return the token set of every token-set readout named, without those whose dynamic set is not known."""
    found = {}
    for name in names:
        readout = readouts.get(name)
        if readout.kind == "token_set":
            token_set = dynamic if readout.token_set == "dynamic" else readout.token_set
            if token_set is not None:
                found[name] = token_set
    return found


def diagnose(held: AnswerSet, template: str, questions: int, names: Iterable[str]) -> pd.DataFrame:
    """Look at the first tokens of the first questions of one model under one template.

    Parameters
    ----------
    held : AnswerSet
        Its answers; only the emitted first tokens are used.
    template : str
        Name of the prompt template.
    questions : int
        How many questions are looked at, from the first id on (the paper took 100).
    names : iterable of str
        Readouts; those that compare a token set are diagnosed, a dynamic set where the answers tell it.

    Returns
    -------
    pandas.DataFrame
        One row per readout and emitted id, the most frequent first; columns `DIAGNOSTIC_COLUMNS`. ``side`` is what the
        id's text parses as (string_parse; "unknown" is neither). ``proposed_yes`` and ``proposed_no`` (JSON) are the
        set with every uncovered id added to its side; ids on neither side are left for a person to judge.
    """
    asked = held.questions().sort_values("id").head(questions)
    counts = Counter(asked["emitted_id"].tolist())
    texts = dict(zip(asked["emitted_id"], asked["emitted_text"], strict=True))
    rows = []
    for name, token_set in token_sets(names, held.dynamic).items():
        sides = {token: parsers.string_parse(texts[token]) for token in counts}
        new = {side: sorted(t for t in counts if sides[t] == side and t not in token_set.ids) for side in ("yes", "no")}
        covered = sum(count for token, count in counts.items() if token in token_set.ids)
        for token, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
            rows.append(
                {
                    "study": held.study,
                    "model": held.model,
                    "template": template,
                    "split": held.split,
                    "questions": len(asked),
                    "readout": name,
                    "token_id": token,
                    "text": texts[token],
                    "count": count,
                    "covered": token in token_set.ids,
                    "side": sides[token],
                    "covered_share": covered / len(asked),
                    "proposed_yes": json.dumps([*token_set.yes, *new["yes"]]),
                    "proposed_no": json.dumps([*token_set.no, *new["no"]]),
                }
            )
    return pd.DataFrame(rows, columns=list(DIAGNOSTIC_COLUMNS))


def agreement_table(sets: Iterable[AnswerSet], names: Iterable[str]) -> pd.DataFrame:
    """Check Theorem 1 on stored answers: single-token readouts against the parse of the first token.

    Parameters
    ----------
    sets : iterable of AnswerSet
        Answers, in the order wanted; where they do not tell the dynamic set, it has no row.
    names : iterable of str
        Readouts in force.

    Returns
    -------
    pandas.DataFrame
        Columns `AGREEMENT_COLUMNS`. ``agree`` counts all rows (2,076 of 3,000 for the two-token rule on the paper's
        adversarial split); ``theorem_holds`` says whether every covered row without a tie agrees.
    """
    names = list(names)
    rows = []
    for held in sets:
        for name, token_set in token_sets(names, held.dynamic).items():
            frame = held.frame[held.frame["readout"] == name]
            if frame.empty:
                continue
            ties = frame["tie"].to_numpy() if "tie" in frame else None
            answered = readouts.Answers(name, frame["answer"].to_numpy(dtype="U7"), ties, None)
            found = readouts.agreement(frame["emitted_text"], frame["emitted_id"], answered, token_set)
            rows.append((held.study, held.model, held.split, name, *astuple(found), found.theorem_holds))
    return pd.DataFrame(rows, columns=list(AGREEMENT_COLUMNS))
