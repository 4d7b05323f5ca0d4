"""Named rules that read yes or no from a text, as published evaluation code applies them.

Each rule is the behaviour of one public evaluator, stated here in this project's own words and code. They
agree on bare words only; on real answers they differ, so a number that was read from text is worth something
only beside the name of its rule. Every rule gives "yes", "no" or "unknown" (no verdict); an unknown is never
turned into either. A rule whose meaning changes gets a higher version.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from workflow.lib.errors import BadInput

YES, NO, UNKNOWN = "yes", "no", "unknown"

_HEAD = 64
_YES_OR_NO = re.compile(r"\b(yes|no)\b")
_VQA_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_DIGITS_AROUND_COMMA = re.compile(r"\d,\d")
_PERIOD_NOT_BEFORE_DIGIT = re.compile(r"\.(?!\d)")


@dataclass(frozen=True)
class Parser:
    """A rule with its name, version and origin.

    ``needs_label`` marks the one rule whose verdict depends on the true label.
    """

    name: str
    version: int
    source: str
    rule: Callable[..., str]
    needs_label: bool = False

    def __call__(self, text: str, label: str = "") -> str:
        """Return the verdict on ``text``; ``label`` is used only where the rule needs it."""
        return self.rule(text, label) if self.needs_label else self.rule(text)


def string_parse(text: str) -> str:
    """Return the first word-bounded "yes" or "no" in the head of the text.

    Rule of the first paper's companion code: strip, lower-case, keep 64 characters, then search; a word that
    the cut shortens to "no" counts. No verdict: "unknown", which its metrics leave out of all four cells.
    """
    found = _YES_OR_NO.search(text.strip().lower()[:_HEAD])
    return found[1] if found else UNKNOWN


def pope_official(text: str) -> str:
    """Return "no" where the first sentence holds No, no or not as a word between spaces, else "yes".

    Rule of POPE's evaluate.py and LLaVA's eval_pope.py. A sentence ends at the first full stop, commas are
    dropped, only the space separates words: "NO", "no" before a line end, and the empty text are yes. No
    verdict: does not exist; everything without such a word is "yes".
    """
    words = text.partition(".")[0].replace(",", "").split(" ")
    return NO if {"No", "no", "not"}.intersection(words) else YES


def opera(text: str) -> str:
    """Return "no" where any word is No, no, NO or not, or ends in n't; else "yes".

    Rule of OPERA's pope_eval.py. Full stops and commas are deleted, so "No.Yes" is one word, and the whole
    text is searched. No verdict: does not exist; everything else, the empty text too, is "yes".
    """
    words = text.translate(str.maketrans("", "", ".,")).split(" ")
    negative = any(word in ("No", "no", "NO", "not") or word.endswith("n't") for word in words)
    return NO if negative else YES


def vcd(text: str, label: str) -> str:
    """Return whether the text contains the true label, spelt out as an answer.

    Rule of VCD's eval_pope.py, whose test depends on the label: for label yes the answer is "yes" where the
    letters y-e-s occur anywhere in the lower-cased text, else "no"; for label no it is "no" where n-o occur
    anywhere (also in "snowboard" and "know"), else "yes". No verdict: counts as the wrong answer.

    Raises
    ------
    BadInput
        Where the label is neither yes nor no.
    """
    if label not in (YES, NO):
        raise BadInput(f"the vcd rule needs the true label, yes or no, but got {label!r}: pass the labels.")
    if label in text.lower():
        return label
    return NO if label == YES else YES


def lmms_eval_pope(text: str) -> str:
    """Return the text itself where it is the bare word yes or no, in any case and between any blanks.

    Rule of lmms-eval's POPE task. No verdict: "unknown", already for "Yes." with its full stop; that task
    counts it as wrong in accuracy and leaves it out of precision and recall.
    """
    word = text.lower().strip()
    return word if word in (YES, NO) else UNKNOWN


def mme(text: str) -> str:
    """Return "yes" or "no" where its letters stand in the first four characters, yes before no.

    Rule of lmms-eval's MME task, which took it from Otter. Lower-cased, stripped, full stops deleted; a text
    of one character is read as y or n. "Not sure", "None" and "Now" are therefore no. No verdict: "unknown"
    (named "other" there), which is counted as wrong.
    """
    head = text.lower().strip().replace(".", "")
    if len(head) == 1:
        return {"y": YES, "n": NO}.get(head, UNKNOWN)
    return next((word for word in (YES, NO) if word in head[:4]), UNKNOWN)


def vlmevalkit(text: str) -> str:
    """Return the one of yes and no that occurs as a word anywhere, if only one of them does.

    Rule of VLMEvalKit's yorn.py, on words left by the punctuation rule of the VQA evaluation. No verdict:
    "unknown", also where both words occur; there a judge model may be asked next, else it is not a yes.
    """
    words = set(_without_punctuation(text.lower()).split())
    found = [word for word in (YES, NO) if word in words]
    return found[0] if len(found) == 1 else UNKNOWN


def _without_punctuation(text: str) -> str:
    """Delete or blank punctuation as the VQA evaluation does.

    A mark that touches a space somewhere, and every mark in a text with a comma between digits, is deleted;
    any other becomes a space. Full stops are deleted unless a digit follows.
    """
    delete_all = _DIGITS_AROUND_COMMA.search(text) is not None
    blanks = {mark: "" if delete_all or f"{mark} " in text or f" {mark}" in text else " " for mark in _VQA_PUNCTUATION}
    # there the flag re.UNICODE (32) lands in the place of the count, so the 33rd full stop survives
    return _PERIOD_NOT_BEFORE_DIGIT.sub("", text.translate(str.maketrans(blanks)), count=32)


PARSERS: dict[str, Parser] = {
    parser.name: parser
    for parser in (
        Parser("string_parse", 1, "Kesav2k04/ugaa-research 08a10ab, run_multi_model_audit.py", string_parse),
        Parser("pope_official", 1, "RUCAIBox/POPE evaluate.py; LLaVA 4241f08, eval_pope.py", pope_official),
        Parser("opera", 1, "shikiw/OPERA 2a0a234, pope_eval.py", opera),
        Parser("vcd", 1, "DAMO-NLP-SG/VCD 039af55, eval_pope.py", vcd, needs_label=True),
        Parser("lmms_eval_pope", 1, "EvolvingLMMs-Lab/lmms-eval 2c03baf, tasks/pope/utils.py", lmms_eval_pope),
        Parser("mme", 1, "EvolvingLMMs-Lab/lmms-eval 306a8b4, tasks/mme/utils.py", mme),
        Parser("vlmevalkit", 1, "open-compass/VLMEvalKit 0c7163c, dataset/utils/yorn.py", vlmevalkit),
    )
}
"""The rules by name."""
