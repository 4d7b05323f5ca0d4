"""tokenizer.json of the tiny checkpoints, in the form that tokenizers 0.19 reads too: merges are strings."""

from workflow.models.mini import tokenizers as mini

QWEN_PIECES = 10000
QWEN_IDS = {piece: QWEN_PIECES + number for number, piece in enumerate(mini.QWEN_SPECIAL)}


def added(pieces: dict[str, int]) -> list[dict]:
    rule = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": number, "content": piece} | rule for piece, number in pieces.items()]


def llama_tokenizer(family: str, begin: tuple[str, int], extra: dict[str, int]) -> dict:
    """Return tokenizer.json of a SentencePiece vocabulary of 32,000 pieces, as converted by transformers 4."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": byte + 3 for byte in range(256)}
    vocabulary["▁"] = mini.SPACE[family]
    vocabulary |= {form.replace(" ", "▁"): number for form, number in mini.FORMS[family].items()}
    words = sorted({*mini.WORDS, *("▁" + word for word in mini.WORDS), "▁["})
    merges = mini.learn_merges(words)
    letters = {letter for word in words for letter in word} | set(mini.MARKS)
    mini.place(vocabulary, merges, letters, mini.FIRST_FREE[family])
    piece, number = begin
    first = {"SpecialToken": {"id": piece, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added({"<unk>": 0, "<s>": 1, "</s>": 2} | extra),
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {piece: {"id": piece, "ids": [number], "tokens": [piece]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": mini.fill(vocabulary, 32000),
            "merges": [" ".join(pair) for pair in merges],
        },
    }


def qwen_tokenizer() -> dict:
    """Return tokenizer.json of a byte-level vocabulary with Qwen2's rules and special tokens."""
    vocabulary = mini.byte_alphabet() | {
        form.replace(" ", "Ġ"): number for form, number in mini.FORMS["qwen2"].items() if number < QWEN_PIECES
    }
    words = sorted({*mini.WORDS, *("Ġ" + word for word in mini.WORDS)})
    merges = mini.learn_merges(words)
    mini.place(vocabulary, merges, set(), 3000)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": mini.QWEN_SPLIT}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(QWEN_IDS),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": mini.fill(vocabulary, QWEN_PIECES),
            "merges": [" ".join(pair) for pair in merges],
        },
    }


def bert_tokenizer() -> dict:
    """Return tokenizer.json of the Q-Former: lower-case words between [CLS] and [SEP]."""
    words = sorted({word.lower() for word in mini.WORDS} | set(mini.MARKS))
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {piece: number for number, piece in enumerate((*special, *words))}
    begin, end = ({"SpecialToken": {"id": piece, "type_id": 0}} for piece in ("[CLS]", "[SEP]"))
    body = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added({piece: vocabulary[piece] for piece in special}),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, body, end],
            "pair": [begin, body, end, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                piece: {"id": piece, "ids": [vocabulary[piece]], "tokens": [piece]} for piece in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


def decoder_entry(pieces: list[dict]) -> dict:
    return {str(piece["id"]): {key: value for key, value in piece.items() if key != "id"} for piece in pieces}
