"""Schemas of ops: what is taken, torch takes too, and it is written again as it was."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelpack.opgen.stated.schema import parse_schema
from tests.fuzz.subject import Subject

_SEEDS = (
    "l2_normalize(Tensor x, float eps=1e-12) -> Tensor",
    "mha(Tensor q, Tensor k, Tensor? bias=None, *, bool is_causal=False, float? scale=None, SymInt[2] window=[-1, -1]) -> (Tensor out, Tensor)",
    "scale_(Tensor(a!) x, Tensor(b!)? y, int n=1, int[] dims=[], ScalarType? dtype=None, Device? device=None) -> ()",
    "count(Tensor x, bool[3] flags=True, float[] weights=[0.5, -1.]) -> (int, SymInt n, float, bool)",
)


def _run(data: bytes, folder: Path) -> None:
    schema = parse_schema(data.decode("utf-8", "surrogateescape"))
    assert parse_schema(str(schema)) == schema
    for one in (schema, schema.out_variant()):
        if one is not None:
            torch._C.parse_schema(str(one))


SUBJECT = Subject(
    lambda: [text.encode() for text in _SEEDS],
    _run,
    tokens=[
        b"Tensor", b"Tensor(a!)", b"int", b"SymInt", b"float", b"bool", b"ScalarType", b"Device", b"str", b"?", b"[]", b"[2]", b"=None",
        b"=True", b"=[", b"*, ", b" -> ", b"()", b"(a! -> b)", b"1e5", b"-0.", b".5", b"e", b"self", b"out", b"\xc3\xa9", b"\xc2\xb2",
        b"\xd9\xa1",
    ],
)  # fmt: skip
