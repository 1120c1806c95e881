"""The C++ tokenizer gives the tokens that PyPI's tokenizers gives, by each way to split text; what it cannot read it refuses."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from gguf import GGUFWriter
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.tokens import CONTROL, model_file, tokenizer_of
from tests.serving.language_model.reader import SERVER, Reader, Refused, build
from tests.serving.language_model.strings import is_known, no_text, text

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {"smollm": "", "gpt-2": GPT2, "llama-bpe": LLAMA, "qwen2": LLAMA.replace("{1,3}", "")}
"""As the authors of these models publish them. SmolLM2's splits digits first."""
NORMAL, USER_DEFINED = 1, 4


def vocabulary(
    path: Path, tokens: list[str], merges: list[str] | None, types: list[int] | None = None, *, pre: str = "gpt-2", **more: int
) -> Path:
    """Writes a file with a tokenizer alone."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    if merges is not None:
        writer.add_token_merges(merges)
    if types is not None:
        writer.add_token_types(types)
    for name, value in more.items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def byte_words() -> list[str]:
    """Returns the characters that stand for bytes, in the bytes' order."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return [chr(byte) if byte in own else chr(256 + others.index(byte)) for byte in range(256)]


@pytest.fixture(scope="module")
def unknown(smollm: File) -> bytes:
    """The bytes that SmolLM2 has no token for: both leave them out."""
    known = set(smollm.fields["tokenizer.ggml.tokens"])
    found = bytes(byte for byte, word in enumerate(byte_words()) if word not in known)
    assert len(found) == 21
    return found


def reference(file: File, pre: str, *, control: bool) -> Tokenizer:
    if pre == "smollm" and control:
        return tokenizer_of(file)
    fields = {name.removeprefix("tokenizer.ggml."): value for name, value in file.fields.items()}
    merges = [tuple(merge.split(" ")) for merge in fields["merges"]]
    words = {word: number for number, word in enumerate(fields["tokens"])}
    tokenizer = Tokenizer(models.BPE(words, merges, ignore_merges=pre == "llama-bpe"))
    first = pre_tokenizers.Digits(True) if pre == "smollm" else pre_tokenizers.Split(Regex(PATTERNS[pre]), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    special = [word for word, kind in zip(fields["tokens"], fields["token_type"], strict=True) if kind == CONTROL]
    if control:
        tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    return tokenizer


@pytest.fixture(scope="module")
def load(reader: Reader, smollm: File, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Has the readers load SmolLM2's vocabulary as another model would split text by it."""
    folder = tmp_path_factory.mktemp("vocabularies")
    tokens, merges, types = (list(smollm.fields[f"tokenizer.ggml.{name}"]) for name in ("tokens", "merges", "token_type"))

    def open_and_load(pre: str) -> None:
        path = folder / f"{pre}.gguf"
        reader.open(path if path.exists() else vocabulary(path, tokens, merges, types, pre=pre))
        assert reader.load_tokenizer() == len(tokens)

    return open_and_load


def compare(reader: Reader, file: File, pre: str, unknown: bytes, count: int, seed: int) -> None:
    random = Random(seed)
    with_control, without = (reference(file, pre, control=control) for control in (True, False))
    for number in range(count):
        data = text(random)
        ids = reader.encode(data)
        assert ids == without.encode(data).ids, repr(data)
        if number % 4 == 0 or "<|" in data:
            assert reader.encode(data, control=True) == with_control.encode(data).ids, repr(data)
        assert reader.decode(ids) == data.encode().translate(None, unknown), repr(data)
        if number % 4 == 0:
            wrong = no_text(random)
            assert reader.decode(reader.encode(wrong)) == wrong.translate(None, unknown), wrong


@pytest.mark.parametrize("pre", PATTERNS)
def test_tokens_are_those_of_tokenizers(
    reader: Reader, load: Callable[[str], None], smollm: File, pre: str, unknown: bytes
) -> None:
    load(pre)
    compare(reader, smollm, pre, unknown, 500, 1)


@pytest.mark.slow
@pytest.mark.parametrize("pre", PATTERNS)
def test_tokens_of_many_texts(reader: Reader, load: Callable[[str], None], smollm: File, pre: str, unknown: bytes) -> None:
    load(pre)
    compare(reader, smollm, pre, unknown, 100_000 if pre == "smollm" else 25_000, 2)


@pytest.mark.slow
@pytest.mark.parametrize("pre", ["smollm", "llama-bpe"])
def test_tokens_of_every_character(reader: Reader, load: Callable[[str], None], smollm: File, pre: str) -> None:
    """Each beside letters, digits, spaces and signs, so that it is seen which of them it is."""
    load(pre)
    tokenizer = reference(smollm, pre, control=False)
    known = [chr(code) for code in range(0x110000) if is_known(code)]
    assert len(known) > 250_000
    for start in range(0, len(known), 16):
        data = "\n".join(f"he{c}he{c}12{c}34 {c} {c}  {c}!!{c}?!\n{c}\n\n" for c in known[start : start + 16])
        assert reader.encode(data) == tokenizer.encode(data).ids, repr(data)


def test_the_model_file_itself(reader: Reader, smollm: File) -> None:
    reader.open(model_file())
    assert reader.load_tokenizer() == 49152
    tokenizer = tokenizer_of(smollm)
    talk = "<|im_start|>user\nWhat's 12 \u00d7 34?<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(talk).ids
    assert reader.encode(talk, control=True) == ids
    assert set(ids) & {0, 1, 2}
    as_text = reader.encode(talk)
    assert not set(as_text) & set(range(17))
    assert reader.decode(as_text) == talk.encode()
    assert reader.decode(ids) == talk.replace("<|im_start|>", "").replace("<|im_end|>", "").encode()
    flags = reader.tokens(range(-1, 49153))
    assert [number - 1 for number, (_, ends) in enumerate(flags) if ends] == [0, 2]
    assert flags[0] == flags[-1] == (b"", False)  # numbers that are no tokens
    assert [data for data, _ in flags[1:18]] == [b""] * 17


@pytest.mark.parametrize("pre", ["smollm", "llama-bpe"])
def test_long_runs_take_no_long_time(reader: Reader, load: Callable[[str], None], pre: str, unknown: bytes) -> None:
    load(pre)
    for part in (b"a", b" ", b"\n", b" \n", b"1", "\U0001f600".encode(), b"<|", b"'s", b"\x80", b"\xff"):
        data = part * (200_000 // len(part))
        began = time.monotonic()
        ids = reader.encode(data, control=True)
        assert time.monotonic() - began < 5, part  # a hundredth of what a quadratic way takes
        assert reader.decode(ids) == data.translate(None, unknown)


@pytest.mark.slow
def test_threads_share_a_tokenizer(shared_folder: Path, smollm: File, tmp_path: Path) -> None:
    sources = [SERVER / "gguf.cpp", SERVER / "tokenizer.cpp", Path(__file__).parent / "tokenizer_threads.cpp"]
    flags = ["-O1", "-fsanitize=thread"]
    program = build(shared_folder / "lm_tokenizer_threads", "tokenizer_threads", sources, flags, ["-lpcre2-8", "-lpthread"])
    tokens, merges, types = (list(smollm.fields[f"tokenizer.ggml.{name}"]) for name in ("tokens", "merges", "token_type"))
    files = [vocabulary(tmp_path / f"{pre}.gguf", tokens, merges, types, pre=pre) for pre in PATTERNS]
    done = subprocess.run([program, *files], env={"TSAN_OPTIONS": "halt_on_error=1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_control_and_user_defined_tokens(reader: Reader, tmp_path: Path) -> None:
    more = ["<|a|>", "<|a|>b", "\u2603 ", "<|im_end|>", "<|eot_id|>", "<|x|>", "", "Ġ\u2603"]
    more.append("zz")
    types = [NORMAL] * 256 + [CONTROL, CONTROL, USER_DEFINED, CONTROL, NORMAL, CONTROL, CONTROL, NORMAL, NORMAL]
    reader.open(vocabulary(tmp_path / "v.gguf", byte_words() + more, ["z z"], types, eos_token_id=261, eot_token_id=256))
    assert reader.load_tokenizer() == 265
    data = "x<|a|>bc<|a|>\u2603 <|a|".encode()
    found = reader.encode(data, control=True)
    assert found == [ord("x"), 257, ord("c"), 256, 258, *b"<|a|"]  # the longest first
    assert reader.encode(data) == list(data)
    assert reader.tokens([257, 258, 260, 263]) == [
        (b"", False),
        ("\u2603 ".encode(), False),
        (b"<|eot_id|>", False),  # text, not a control token
        ("Ġ\u2603".encode(), False),  # no characters of bytes: text as it stands
    ]
    assert [token for token, (_, ends) in enumerate(reader.tokens(range(265))) if ends] == [256, 259, 261]
    reader.open(vocabulary(tmp_path / "w.gguf", [*byte_words(), "zz"], ["z z"]))  # without types
    reader.load_tokenizer()
    assert reader.encode(bytes(range(256))) == list(range(256))


def test_earlier_merges_come_first_and_equal_ones_from_the_left(reader: Reader, tmp_path: Path) -> None:
    words = [*byte_words(), "bc", "ab", "aa", "abc", "aaa"]
    merges = ["b c", "a b", "a a", "ab c", "aa a"]
    reader.open(vocabulary(tmp_path / "v.gguf", words, merges))
    reader.load_tokenizer()
    a, c = ord("a"), ord("c")
    bc, ab, aa, _, aaa = range(256, 261)
    assert reader.encode("abc") == [a, bc]
    assert reader.encode("abac") == [ab, a, c]
    assert reader.encode("aaa") == [aaa]
    assert reader.encode("aaaa") == [aa, aa]
    assert reader.encode("aaaaa") == [aa, aaa]
    reader.open(vocabulary(tmp_path / "w.gguf", words, merges, pre="llama-bpe"))
    reader.load_tokenizer()
    assert reader.encode("abc") == [259]  # Llama 3 takes a token that is the whole piece


WORDS = [*byte_words(), "zz"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"merges": None}, "field 'tokenizer.ggml.merges' is missing"),
        ({"pre": "deepseek-coder"}, "splits text as 'deepseek-coder', not smollm, gpt-2, llama-bpe or qwen2"),
        ({"tokens": WORDS[:66] + WORDS[67:]}, "no token stands for byte 66"),
        ({"merges": ["a bb"]}, "merge 'a bb' is not two tokens that make a third"),
        ({"merges": ["aa b"]}, "merge 'aa b' is not two"),
        ({"merges": ["a b"]}, "merge 'a b' is not two"),
        ({"merges": ["ab"]}, "merge 'ab' is not two"),
        ({"merges": [" "]}, "merge ' ' is not two"),
        ({"tokens": [*WORDS, "ab"], "merges": ["a b", "a b"]}, "merge 'a b' is there twice"),
        ({"tokens": [*WORDS, "ab"], "merges": ["a b"], "types": [1] * 257 + [CONTROL]}, "merge 'a b' is not two"),
        ({"types": [1] * 256}, "257 tokens have 256 types"),
        ({"eos_token_id": 257}, "field tokenizer.ggml.eos_token_id is 257, which is no token"),
        ({"add_bos_token": True}, "field 'tokenizer.ggml.bos_token_id' is missing"),
        ({"add_bos_token": True, "bos_token_id": 257}, "field tokenizer.ggml.bos_token_id is 257, which is no token"),
        ({"add_bos_token": 1}, "field 'tokenizer.ggml.add_bos_token' is not true or false"),
        ({"tokens": ["zz", "z"]}, "no token stands for byte 32"),
    ],
)  # fmt: skip
def test_vocabularies_that_are_refused(reader: Reader, change: dict[str, object], expected: str, tmp_path: Path) -> None:
    path = vocabulary(tmp_path / "v.gguf", **{"tokens": WORDS, "merges": ["z z"], **change})
    reader.open(path)
    with pytest.raises(Refused) as refused:
        reader.load_tokenizer()
    assert expected in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("more", "begins"),
    [
        ({"pre": "llama-bpe", "bos_token_id": 257}, True),
        ({"pre": "llama-bpe", "bos_token_id": 257, "add_bos_token": False}, False),
        ({"pre": "llama-bpe"}, False),
        ({"pre": "smollm", "bos_token_id": 257}, False),
        ({"pre": "smollm", "bos_token_id": 257, "add_bos_token": True}, True),
    ],
    ids=str,
)
def test_prompts_begin_as_the_model_expects(reader: Reader, more: dict[str, Any], begins: bool, tmp_path: Path) -> None:
    types = [NORMAL] * 257 + [CONTROL]
    reader.open(vocabulary(tmp_path / "v.gguf", [*byte_words(), "zz", "<|begin|>"], ["z z"], types, **more))
    reader.load_tokenizer()
    first = [257] if begins else []
    assert reader.prompt("azz") == [*first, ord("a"), 256]
    assert reader.prompt("<|begin|>a") == [257, ord("a")]  # once
    assert reader.prompt("") == first
    assert reader.encode("a", control=True) == [ord("a")]


def test_other_kinds_of_tokenizers_are_refused(reader: Reader, tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    reader.open(tmp_path / "v.gguf")
    with pytest.raises(Refused, match="its tokenizer is 'llama', expected 'gpt2'"):
        reader.load_tokenizer()
