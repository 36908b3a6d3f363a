#!/usr/bin/env python3
"""Writes tests/golden/tokenizers: small tokenizers in the layouts that real model folders have, and what the
Hugging Face `tokenizers` library makes of difficult texts with each of them.

    /opt/torch/bin/python tools/golden_tokenizers.py [folder]

<name>.json is the tokenizer, <name>.cases.json a list of
  {text, plain, ids, spans, decoded, skipped}
plain: ids without special tokens, those in the text being text; ids and spans (begin, end, begin, … in bytes):
with special tokens added, and parsed in the text. `decoded` is the decoding of ids, `skipped` the same without
special tokens; null where it is the text itself.
"""
import base64
import json
import pathlib
import random
import struct
import sys
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def corpus():
    """Text to train on: sentences from a fixed list of words in several scripts."""
    rng = random.Random(4)
    words = ("the a of and to in is that it was for on are as with they be at one have this from or had by word but "
             "what some we can out other were all there when up use your how said an each she which do their time if "
             "will way about many then them write would like so these her long make thing see him two has look more "
             "day could go come did number sound no most people my over know water than call first who may down side "
             "been now find training gradient memory optimizer token don't it's we'll I've they're I'm he'd "
             "Straße naïve café élan über señor быть человек время рука дело 学习 模型 训练 中文 日本語 テスト 한국어 "
             "토큰 שלום עולם مرحبا العالم 123 2024 3.14 100 int main return if (x == 0) { } -> == != 😀 👍").split()
    lines = []
    for _ in range(1500):
        line = " ".join(rng.choice(words) for _ in range(rng.randint(3, 14)))
        lines.append(line.capitalize() + rng.choice([".", "!", "?", ",", ";\n", "\n\n", "  ", "..."]))
    return lines


TEXTS = [
    "", " ", "  ", "     ", "\n", "\n\n\n", "\t", " \t \n \r\n ", "a", " a", "a ", "  a  ", "Hello, world!",
    "The quick brown fox jumps over the lazy dog.", "don't DON'T Don'T we'll WE'LL I've I'VE they're THEY'RE I'm it's "
    "IT'S he'd HE'D 'tis o'clock ''s 'sS '\u017f x'\u017ft", "1 12 123 1234 12345 3.14159 1,000,000 ²³½ ٣٤٥ Ⅷ 10e-5 0x1F",
    "    def f(x):\n        return x + 1\n\n\n# end", "a\u00a0b\u2003c\u3000d\u180ee\u200bf\u2028g\u0085h", "x" * 300,
    "ab" * 100 + " " * 70 + "c" + "\n" * 40 + "d", "e\u0301 \u00e9 a\u0308\u0323 a\u0323\u0308 \u1e69 s\u0323\u0307 q\u0307\u0323",
    "\u0301lead \u0344\u0327 \u212b \u2126 \ufb01 \u0132 ﬀ ① ㍿ \u1e9b\u0323", "한국어 각 \u1100\u1161\u11a8 \uac00\u11a8 힣 ㄱㅏ",
    "👨‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ☃️ 1️⃣ 😀😀", "שלום עולם مرحبا بالعالم \u202bRTL\u202c ‏x‎", "中文字符测试，你好。日本語テスト カタカナ ｶﾞ",
    "\ud7ff\ue000\uf8ff\ufffd\ufffe\uffff\U00010000\U0001f600\U000e0001\U0010ffff", "\x00\x01\x07\x08\x0b\x0c\x1b\x1f\x7f\x80\x9f",
    "İstanbul ıI ǅ ẞß ΑΣΣ Σ ſ", "<s>hi</s> <unk> <pad><|endoftext|>x<|eot_id|> [CLS] [SEP][MASK] a[MASK]b <extra> <EXTRA>",
    "strip  <left>  me  <right>  now <both> \t<both>\n", "word single words <one> x<one> <one>y <one>, (<one>)", "new new_token "
    "newtoken renew", "▁▁ ▁a b▁ a▁b  ▁ c", "<0x41> <0x0A> <0xZZ>", "Zürich—naïve café… “quotes” ‘x’ «y» – ―", "a.b,c;d:e!f?g-h_i/j\\k|l@m#n$o%p^q&r*s(t)u+v=w~x`y\"z",
    "tail space ", "tail newline\n", "\r\n mixed \r\n\r\n ends \r", "ﷺ ㍻ ｆｕｌｌ ｗｉｄｔｈ Ａ１", "หนึ่ง สอง ကမ္ဘာ नमस्ते दुनिया தமிழ் ঁং",
    "Ω≈ç√∫˜µ≤≥÷ ¡™£¢∞§¶•ªº", "\u2581", " \u2581 ", "x\u200dy\u200cz", "Ġ Ċ âĢ Ã", "é" * 25, "token " * 20, "ⓐⒶ ᾳ ᾼ ͅ",
]


def random_texts(count):
    rng = random.Random(7)
    pools = ["abcdefghij klmnop  qrst\n\t'", "0123456789 .,", "éüñçßÅ\u0301\u0308\u0323", "中文日本語テスト한국어 ", "😀👍🏽\u200d🇩🇪",
             "<s></s><|eot_id|><one> ", "\u00a0\u2003\r\n \t", "".join(chr(c) for c in range(0x590, 0x700))]
    texts = []
    for _ in range(count):
        text = "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 60)))
        texts.append(text)
    for _ in range(count // 2):
        codes = [rng.choice([rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)]) for _ in range(12)]
        # Characters that every Unicode version in use agrees on.
        texts.append("".join(chr(c) for c in codes if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")))
    return texts


def bpe(special, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    return tokenizer, lambda size, alphabet: trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False)


BYTES = pre_tokenizers.ByteLevel.alphabet()
ADDED = [AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True),
         AddedToken("<one>", single_word=True), AddedToken("new_token", normalized=False), AddedToken("<extra>", normalized=True)]


def gpt2():
    tokenizer, trainer = bpe(["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
    tokenizer.train_from_iterator(corpus(), trainer(700, BYTES))
    tokenizer.add_tokens(ADDED)
    return tokenizer


def gpt2_prefix():
    tokenizer, trainer = bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainer(500, BYTES))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    return tokenizer


def llama3():
    tokenizer, trainer = bpe([], ignore_merges=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainer(700, BYTES))
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|endoftext|>", "<|eot_id|>"])
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def qwen2():
    tokenizer, trainer = bpe([])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False, add_prefix_space=False)
    tokenizer.train_from_iterator(corpus(), trainer(600, BYTES))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(ADDED)
    return tokenizer


def deepseek():
    tokenizer, trainer = bpe([])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r), "isolated") for r in DEEPSEEK] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainer(500, BYTES))
    return tokenizer


def falcon():
    tokenizer, trainer = bpe(["<|endoftext|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(corpus(), trainer(500, BYTES))
    return tokenizer


SPM_SPECIAL = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]


def spm(metaspace):
    """Llama-2 and Mistral: byte tokens are in the vocabulary without being special."""
    tokenizer, trainer = bpe(SPM_SPECIAL, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=metaspace == "split")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    training = Tokenizer(models.BPE(unk_token="<unk>"))
    training.pre_tokenizer = pre_tokenizers.Metaspace()
    training.train_from_iterator([line for line in corpus() if line.isascii() or "é" in line], trainer(800, []))
    data = json.loads(training.to_str())
    tokenizer_data = json.loads(tokenizer.to_str())
    tokenizer_data["model"].update(vocab=data["model"]["vocab"], merges=data["model"]["merges"])
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    tokenizer_data["added_tokens"] = [dict(id=i, content=t, **flags) for i, t in enumerate(SPM_SPECIAL[:3])]
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_data))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    if metaspace:
        tokenizer.add_tokens(ADDED)
    return tokenizer


def double_array(entries):
    """A Darts-clone double array over byte keys; values are offsets. Simple placement, small maps only."""
    children = {}
    for key, value in entries.items():
        for i in range(len(key)):
            children.setdefault(key[:i], set()).add(key[i])
        children.setdefault(key, set()).add(0)
    units, used, bases = [0] * 256, {0}, set()

    def place(prefix, at):
        labels = sorted(children[prefix])
        base = 1
        while base in bases or any((base ^ c) in used for c in labels):
            base += 1
        bases.add(base)
        while base + 256 > len(units):
            units.extend([0] * 256)
        used.update(base ^ c for c in labels)
        units[at] |= (base ^ at) << 10 | (0x100 if 0 in labels else 0)
        for c in labels:
            units[base ^ c] = 1 << 31 | entries[prefix] if c == 0 else c
        for c in labels:
            if c:
                place(prefix + bytes([c]), base ^ c)

    place(b"", 0)
    return units


def charsmap():
    """A part of NFKC with SentencePiece's treatment of spaces, in its binary form."""
    wanted = [chr(c) for c in [0xA0, 0x3000, 0x2003, 0x9, 0xA, 0xD, 0x200B, 0xFB00, 0xFB01, 0x2460, 0x33BF, 0xFDFA, 0x2126, 0x212B,
                               *range(0xFF01, 0xFF5F), 0xFF76, 0x32C0, 0xBD, 0xB2]]
    entries, texts = {}, b""
    pairs = {c: " " if c.isspace() or c == "\u200b" else unicodedata.normalize("NFKC", c) for c in wanted}
    pairs.update({"e\u0301": "é", "a\u0308": "ä", "\uff76\uff9e": "ガ", "\u00ad": "", "\x7f": ""})
    for key, value in pairs.items():
        entries[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    trie = struct.pack(f"<{len(double_array(entries))}I", *double_array(entries))
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


def unigram(name):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    if name == "bytes":
        special += [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.UnigramTrainer(vocab_size=700, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    if name == "bytes":
        data["model"]["byte_fallback"] = True
        data["decoder"] = json.loads(decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                                        decoders.Strip(" ", 1, 0)]).__getstate__())
        data["normalizer"] = json.loads(normalizers.Sequence(
            [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]).__getstate__())
    else:
        data["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap()},
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]}
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    tokenizer.add_tokens(ADDED)
    return tokenizer


def words():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def suffix():
    """Old byte-pair layouts: a suffix at the end of words, unknown characters fused."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")])
    tokenizer.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=60, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def record(tokenizer, text, special):
    tokenizer.encode_special_tokens = not special
    encoding = tokenizer.encode(text, add_special_tokens=special)
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return encoding.ids, [starts[x] for span in encoding.offsets for x in span]


def without_special(tokenizer):
    """The library's unigram model reads special tokens out of the text even when told not to; zeno does not.
    Here their texts are such that no text has them."""
    data = json.loads(tokenizer.to_str())
    if data["model"]["type"] == "Unigram":
        for token in data["added_tokens"]:
            token["content"] = data["model"]["vocab"][token["id"]][0] = f"\U0010fffe{token['id']}"
    return Tokenizer.from_str(json.dumps(data))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/golden/tokenizers")
    folder.mkdir(parents=True, exist_ok=True)
    made = {"gpt2": gpt2(), "gpt2_prefix": gpt2_prefix(), "llama3": llama3(), "qwen2": qwen2(), "deepseek": deepseek(),
            "falcon": falcon(), "llama2": spm(None), "mistral": spm("whole"), "mistral_split": spm("split"),
            "unigram": unigram("t5"), "unigram_bytes": unigram("bytes"), "bert": bert(), "words": words(), "suffix": suffix()}
    for name, tokenizer in made.items():
        tokenizer = Tokenizer.from_str(tokenizer.to_str())  # as it will be read
        cases, plain_tokenizer = [], without_special(tokenizer)
        for text in TEXTS + random_texts(30):
            plain, (ids, spans) = record(plain_tokenizer, text, False)[0], record(tokenizer, text, True)
            case = {"text": text, "plain": plain, "ids": ids, "spans": spans}
            for name_of, skip in (("decoded", False), ("skipped", True)):
                decoded = tokenizer.decode(ids, skip_special_tokens=skip)
                case[name_of] = None if decoded == text else decoded
            cases.append(case)
        (folder / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), separators=(",", ":"), ensure_ascii=False), "utf-8")
        (folder / f"{name}.cases.json").write_text(json.dumps(cases, separators=(",", ":"), ensure_ascii=False), "utf-8")


main()
