"""The language-model server's readers in C++: GGUF files, the tokenizer, and streamed text."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from tests.fuzz.mutate import mutated
from tests.fuzz.sanitized import HERE, Crash, Readers, build
from tests.fuzz.subject import ROOT, Subject

SERVER = ROOT / "serving_examples" / "language_model" / "server"
PRE = ("smollm", "gpt-2", "llama-bpe", "qwen2")


@functools.cache
def built() -> Path:
    """Returns the folder with the program and the vocabularies that it splits texts by."""
    sources = [*(SERVER / f"{name}.cpp" for name in ("gguf", "tokenizer", "text")), HERE / "language_model.cpp"]
    folder = build("readers", sources, [*SERVER.glob("*.h"), Path(__file__)], [f"-I{SERVER}"], ["-lpcre2-8"])
    if not (folder / "3.gguf").exists():
        for number, pre in enumerate(PRE):
            part = folder / f"{number}.{Path(__file__).stem}"
            _write_smollm(part, pre)
            part.rename(folder / f"{number}.gguf")
    return folder


def _write_smollm(path: Path, pre: str) -> None:
    from serving_examples.language_model.tokens import model_file

    fields = GGUFReader(model_file()).fields
    tokens, merges, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges", "token_type"))
    _write(path, pre, tokens, merges, types)


def _write(path: Path, pre: str, tokens: list[str], merges: list[str], types: list[int], *, tensors: bool = False) -> None:
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    if tensors:
        writer.add_custom_alignment(16)
        writer.add_uint64("u", 7)
        writer.add_float32("f", 0.5)
        writer.add_array("numbers", [1, -2])
        writer.add_tensor("one", numpy.arange(5, dtype=numpy.float32))
        rows = numpy.arange(40, dtype=numpy.uint8).reshape(2, 20)
        writer.add_tensor("two", rows, raw_dtype=GGMLQuantizationType.Q4_1)
        writer.add_eos_token_id(3)
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types(types)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _small_files(folder: Path) -> list[bytes]:
    """Returns files with the fewest words that a tokenizer takes, and a few merges."""
    words = [
        *map(chr, range(0x21, 0x7F)),
        "\u0120",
        "\u010a",
        "\u00c3",
        "\u00a9",
        "ab",
        "abc",
        "ll",
        "\u0120\u0120",
        "<|a|>",
        "<|im_end|>",
        "x y",
    ]
    types = [1] * (len(words) - 3) + [3, 3, 4]
    files = []
    for pre in PRE:
        path = folder / "seed.gguf"
        _write(path, pre, words, ["a b", "ab c", "l l", "\u0120 \u0120"], types, tensors=True)
        files.append(path.read_bytes())
    return files


_running: dict[Path, Readers] = {}


def _run(data: bytes, folder: Path) -> range:
    if folder not in _running:
        _running[folder] = Readers(built() / "readers", folder / "readers.log", {"FUZZ_VOCABULARIES": str(built())})
    try:
        return range(_running[folder].give(data))
    except Crash:
        del _running[folder]
        raise


def _seeds() -> list[bytes]:
    texts = [
        b"Hello, I'm 12 <|im_end|> years  old\r\n\n \t.", "caf\u00e9 \u4f60\u597d \U0001f468\u200d\U0001f469 \u0664\u2167 e\u0301\u180e\u3000'\u017f".encode(),
        b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", b"\xff\xc3(\xed\xa0\x80\xf4\x90\xe4\xb8 x\x04\xf0\x9f\x98",
    ]  # fmt: skip
    streams = [
        b"wor\nHello\n\nHello, a world",
        "\u00e9x\n\ufffd\n\na\u00e8\u00e9x\u00e9".encode(),
        b"abab\nba\nabc\n\nabababc",
        b"\n" + texts[3],
    ]
    return [
        *(b"g" + file for file in _small_files(built())),
        *(b"t" + bytes([pre]) + text for pre in range(4) for text in texts),
        *(b"s" + stream for stream in streams),
    ]


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    alike = [other[1:] for other in others if other[:1] == data[:1]]
    return data[:1] + mutated(data[1:], random, alike, _TOKENS.get(data[:1], ()))


_NUMBERS = [*range(14), 16, 30, 31, 32, 255, 256, 2**31 - 1, 2**31, 2**32 - 1]
_TOKENS = {
    b"g": [*(struct.pack("<I", number) for number in _NUMBERS), *(struct.pack("<Q", number) for number in (*_NUMBERS, 2**60, 2**63 - 1, 2**63, 2**64 - 1))],
    b"t": ["\u00e9".encode(), "\u017f".encode(), "\U0001f600".encode(), "\u3000".encode(), b" ", b"\r\n", b"'s", b"12", b"<|im_end|>", b"\xe4\xb8", b"\x80", b"\xff"],
    b"s": [b"\n", "\u00e9".encode(), b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f", "\ufffd".encode(), b"ab", b"a"],
}  # fmt: skip
SUBJECT = Subject(_seeds, _run, mutate=_mutate, refusals=())
