"""Tokenizers of the mini checkpoints: published vocabulary sizes, published ids of the yes/no forms.

Every word of the prompts is one piece. All other ids are filled with unreachable strings, so that an id found
anywhere in a vocabulary of the real size can be decoded.
"""

from collections import Counter
from itertools import pairwise

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from workflow.lib.scenes import NAMES

WORDS = (
    *NAMES,
    *("Is", "there", "a", "an", "in", "the", "image", "Answer", "yes", "or", "no", "only", "Question", "USER"),
    *("ASSISTANT", "Yes", "No", "INST", "system", "user", "assistant", "You", "are", "helpful"),
)
MARKS = ("?", ".", ":", "[", "]", "/")
# published ids of the yes/no forms; "" in front of a form means no space before it
FORMS = {
    "llama": {
        **{"yes": 3582, "Yes": 8241, " yes": 4874, " Yes": 3869},
        **{"no": 1217, "No": 3782, " no": 694, " No": 1939},
    },
    "mistral": {
        **{"yes": 9780, "Yes": 5613, " yes": 5081, " Yes": 5592},
        **{"no": 1510, "No": 2501, " no": 708, " No": 1770},
    },
    "qwen2": {
        **{"yes": 9693, "Yes": 9454, " yes": 9834, " Yes": 7414},
        **{"no": 2152, "No": 2753, " no": 902, " No": 2308},
    },
}
SPACE = {"llama": 29871, "mistral": 28705}
FIRST_FREE = {"llama": 10000, "mistral": 10000, "qwen2": 20000}
QWEN_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
# the splitting rule published with Qwen2
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAVA_NEXT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}[INST] "
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n{% endif %}{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    " [/INST]{% else %}{% for part in message['content'] %}{% if part['type'] == 'text' %} {{ part['text'] }}"
    "</s> {% endif %}{% endfor %}{% endif %}{% endfor %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}USER: "
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n{% endif %}{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }} {% endif %}{% endfor %}"
    "{% else %}ASSISTANT: {% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "</s>{% endif %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def learn_merges(words: list[str]) -> list[tuple[str, str]]:
    """Return byte-pair merges after which every word is one piece.

    The most frequent pair is merged first, ties in the order of the strings, until nothing is left to merge;
    encoding a word repeats the same steps.
    """
    pieces = {word: list(word) for word in words}
    merges = []
    while True:
        pairs = Counter(pair for parts in pieces.values() for pair in pairwise(parts))
        if not pairs:
            return merges
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, parts in pieces.items():
            joined = []
            for part in parts:
                if joined and (joined[-1], part) == best:
                    joined[-1] += part
                else:
                    joined.append(part)
            pieces[word] = joined


def fill(vocabulary: dict[str, int], size: int) -> dict[str, int]:
    """Give every free id below ``size`` an unreachable string."""
    used = set(vocabulary.values())
    return vocabulary | {f"⟨{number}⟩": number for number in range(size) if number not in used}


def place(vocabulary: dict[str, int], merges: list[tuple[str, str]], letters: set[str], first_free: int) -> None:
    """Number the pieces that have no published id, from ``first_free`` on."""
    taken = set(vocabulary.values())
    number = first_free
    for piece in [*sorted(letters), *(a + b for a, b in merges)]:
        if piece in vocabulary:
            continue
        while number in taken:
            number += 1
        vocabulary[piece] = number
        taken.add(number)


def sentencepiece_like(family: str) -> Tokenizer:
    """Return the LLaMA (LLaMA 1 and 2) or Mistral tokenizer: 32,000 pieces, byte fallback, a leading space added.

    As in transformers' LLaMA-2 tokenizer, "yes" encodes to the word-initial piece and " yes" to the space piece
    and then that piece.
    """
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": byte + 3 for byte in range(256)}
    vocabulary["▁"] = SPACE[family]
    vocabulary |= {form.replace(" ", "▁"): number for form, number in FORMS[family].items()}
    words = sorted({*WORDS, *("▁" + word for word in WORDS), "▁["})
    merges = learn_merges(words)
    letters = {letter for word in words for letter in word} | set(MARKS)
    place(vocabulary, merges, letters, FIRST_FREE[family])
    tokenizer = Tokenizer(
        models.BPE(fill(vocabulary, 32000), merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(piece, special=True, normalized=False) for piece in ("<unk>", "<s>", "</s>")]
    )
    return tokenizer


def byte_alphabet() -> dict[str, int]:
    """Return the byte-level letters with the ids they have in GPT-2's and Qwen2's vocabularies."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): number for number, byte in enumerate(kept)} | {
        chr(256 + number): len(kept) + number for number in range(len(others))
    }


def qwen2() -> Tokenizer:
    """Return the Qwen2 tokenizer: byte-level, 151,643 pieces and the special tokens from 151,643 on."""
    vocabulary = byte_alphabet() | {form.replace(" ", "Ġ"): number for form, number in FORMS["qwen2"].items()}
    words = sorted({*WORDS, *("Ġ" + word for word in WORDS)})
    merges = learn_merges(words)
    place(vocabulary, merges, set(), FIRST_FREE["qwen2"])
    tokenizer = Tokenizer(models.BPE(fill(vocabulary, 151643), merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in QWEN_SPECIAL])
    return tokenizer


def for_model(name: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer of one mini checkpoint, with its chat template where the real repository has one."""
    if name == "qwen2_vl":
        return PreTrainedTokenizerFast(
            tokenizer_object=qwen2(),
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            padding_side="left",
            model_max_length=32768,
            chat_template=QWEN_TEMPLATE,
        )
    family = "mistral" if name == "llava16_mistral" else "llama"
    template = {"llava15": LLAVA_TEMPLATE, "llava16_mistral": LLAVA_NEXT_TEMPLATE}.get(name)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=sentencepiece_like(family),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>" if name == "mplug_owl2" else None,
        padding_side="left",
        model_max_length=4096,
        chat_template=template,
    )
    if name != "mplug_owl2":
        added = [AddedToken(piece, special=True, normalized=False) for piece in ("<image>", "<pad>")]
        tokenizer.add_tokens(added, special_tokens=True)
        tokenizer.pad_token = "<pad>"
    return tokenizer


def for_qformer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of InstructBLIP's Q-Former: lower-case words between [CLS] and [SEP], as BERT's."""
    words = sorted({word.lower() for word in WORDS} | set(MARKS))
    vocabulary = {piece: number for number, piece in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{kind}_token": f"[{kind.upper()}]" for kind in ("unk", "cls", "sep", "pad")},
        model_max_length=512,
    )
