"""Command lines, one argument a line, in a folder with some of what they read. None has a slash: nothing else is touched.

A command ends with 0, 1, 2 and prints no traceback.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from unittest import mock

from kernelpack.cli import VERBS, main
from kernelpack.pack.lock import lock_text
from tests.fuzz.mutate import mutated
from tests.fuzz.subject import Subject
from tests.fuzz.subjects import traces
from tests.fuzz.subjects.packs import PACK

_FILES = {
    "a.kpack": str(PACK),
    "bad.kpack": str(PACK).replace("cubin", "object"),
    "broken.kpack": "\xff",
    "ops.lock": lock_text([PACK]),
    "trace": traces._seeds()[0].partition(b"\n")[2].decode(),
    "profile": traces._seeds()[2].partition(b"\n")[2].decode(),
    "kernel.ttir": "tt.func public @k(%p: !tt.ptr<f32>) {\n  %x = tt.load %p : !tt.ptr<f32>\n  tt.store %p, %x : !tt.ptr<f32>\n  tt.return\n}\n",
    "empty.py": '"""No ops."""\n',
    "syntax.py": "def f(:\n",
    "schema.py": 'import kernelpack as kp\n\n@kp.op("x(Tenso x) -> Tensor", variants={}, configs={})\ndef x(x):\n    return x\n',
    "raises.py": "raise ValueError('of the op file')\n",
    "folder/packs/a.kpack": str(PACK),
    "folder/ops.lock": lock_text([PACK]),
    "built/libx_ops.so": "\x7fELF",
    "void/.keep": "",
}
_COMMANDS = (
    "build empty.py --namespace x --target cpu:native --out out -j 2",
    "build schema.py raises.py --namespace x --target cuda:sm_90a --emit-source source --no-cache --json",
    "unbox built", "unbox built --json",
    "inspect a.kpack", "inspect folder --target cuda:sm_90a --op scale --variant *f32* --json", "inspect a.kpack --stage cubin --json",
    "report folder --limit 2 --out page.html", "report empty.py built --benchmark trace --variant any --json",
    "inspect bad.kpack folder --stage ptx", "inspect syntax.py --stage ttir --namespace y",
    "opt kernel.ttir --target cuda:sm_90a --passes canonicalize,ttgir --time --option num_warps=2", "opt --list --target cpu:native --json",
    "opt kernel.ttir --print-after-all",
    "coverage empty.py --op x --target cpu:x86-64-v3", "verify folder --namespace x --lock ops.lock --target cuda:sm_90a --out void -j 1",
    "tune void --target cpu:native --show", "tune empty.py --again --op x", "trace trace --library folder --shapes", "trace profile --json",
    "cache --lock new.lock", "cache --json", "--version", "--help", "",
)  # fmt: skip
_WORDS = sorted({word.encode() for command in _COMMANDS for word in command.split()} | {*map(str.encode, [*_FILES, *VERBS])})


def _make(folder: Path) -> None:
    for name, text in _FILES.items():
        file = folder / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "latin-1")


def _run(data: bytes, folder: Path) -> None:
    _make(folder)
    harmless = re.sub(rb"[/\0~]|\.\.", b"", data)
    argv = [os.fsdecode(word) for word in harmless.split(b"\n")] if harmless else []
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")  # as the interpreter makes it
    before = Path.cwd()
    os.chdir(folder)
    try:
        with (
            mock.patch.dict(os.environ, {"KERNELPACK_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = main(argv)
            except SystemExit as end:
                code = end.code
    finally:
        os.chdir(before)
    assert code in (0, 1, 2), code
    for stream in (out, err):
        stream.flush()
        assert b"Traceback" not in stream.buffer.getvalue()


def _mutate(data: bytes, random: Random, others: Sequence[bytes]) -> bytes:
    words = data.split(b"\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(words) + 1)
        word = random.choice([*_WORDS, mutated(random.choice(words or [b""]), random, _WORDS, _WORDS)[:300]])
        words[at : at + random.randrange(3)] = [word] if random.random() < 0.8 else []
    return b"\n".join(words)


SUBJECT = Subject(lambda: [command.replace(" ", "\n").encode() for command in _COMMANDS], _run, mutate=_mutate, refusals=())
