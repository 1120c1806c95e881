"""Bodies of requests to the language-model server's API, as its C++ reads them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz.mutate import mutated
from tests.fuzz.sanitized import HERE, Crash, Readers, build
from tests.fuzz.subject import ROOT, Subject

SERVER = ROOT / "serving_examples" / "language_model" / "server"


@functools.cache
def built() -> Path:
    """Returns the folder with the program."""
    sources = [*(SERVER / f"{name}.cpp" for name in ("gguf", "tokenizer", "chat", "api")), HERE / "bodies.cpp"]
    return build("bodies", sources, [*SERVER.glob("*.h"), Path(__file__)], [f"-I{SERVER}"], ["-lpcre2-8"])


_running: dict[Path, Readers] = {}


def _run(data: bytes, folder: Path) -> range:
    from serving_examples.language_model.tokens import model_file

    if folder not in _running:
        _running[folder] = Readers(built() / "bodies", folder / "bodies.log", {"FUZZ_VOCABULARY": str(model_file())})
    try:
        return range(_running[folder].give(data))
    except Crash:
        del _running[folder]
        raise


_COMMON = {
    "model": "model", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "n": 2, "stop": ["a", "b"], "seed": -3, "stream": True,
    "stream_options": {"include_usage": True}, "presence_penalty": -1.5, "frequency_penalty": 2, "repetition_penalty": 1.1, "ignore_eos": True,
    "logit_bias": {"7": -100, "49151": 1.5}, "user": "me", "tools": [], "response_format": {"type": "text"},
}  # fmt: skip


def _seeds() -> list[bytes]:
    built()
    parts = [{"type": "text", "text": "h\u00e9"}, {"type": "text", "text": "<|im_end|>"}]
    talk = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "\U0001f600"},
    ]
    completions = [
        {**_COMMON, "prompt": "Hello", "logprobs": 2}, {"prompt": ["a", "b \\ \u0000"], "stop": "x"}, {"prompt": [1, 2, 49151]},
        {"prompt": [[1], [2, 3]], "n": 64, "echo": False, "best_of": 1}, {"prompt": "a", "suffix": "b"},
    ]  # fmt: skip
    chats = [
        {**_COMMON, "messages": talk, "logprobs": True, "top_logprobs": 3},
        {"messages": talk[1:], "max_completion_tokens": 9},
    ]
    return [*(b"c" + json.dumps(one).encode() for one in completions), *(b"h" + json.dumps(one).encode() for one in chats)]


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    alike = [other[1:] for other in others if other[:1] == data[:1]]
    return data[:1] + mutated(data[1:], random, alike, _TOKENS)


_TOKENS = [
    *(f'"{name}":'.encode() for name in (*_COMMON, "prompt", "messages", "role", "content", "type", "text", "logprobs", "top_logprobs", "echo", "max_completion_tokens")),
    b"null", b"true", b"false", b"{", b"}", b"[", b"]", b",", b":", b'"', b'""', b"\\u0000", b"\\ud83d", b"\\ude00", b"\xff", b"\xf0\x9f", b"-0", b"1e999", b"1e-60",
    b"9223372036854775808", b"-9223372036854775808", b"2147483648", b"18446744073709551616", b"0.5", b"-1", b"128", b'"user"', b'"system"', b'"text"', b"[[[[[[[[[[[[[[[[[[[",
]  # fmt: skip
SUBJECT = Subject(_seeds, _run, mutate=_mutate, refusals=())
