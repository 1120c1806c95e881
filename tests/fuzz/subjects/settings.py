"""Texts of targets, and values of environment variables. The first line says which variable, or that it is a target."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from kernelpack import knobs
from kernelpack.backends.installed import backend_of
from kernelpack.cli.targets import op_library_targets, parse_targets
from kernelpack.options import Options, options_of
from kernelpack.target import GPUTarget, Target
from tests.fuzz.subject import Subject

_VALUES = (
    b"",
    b"0",
    b"1",
    b"on",
    b"x",
    b"cpu:native,cuda:sm_90a",
    b"os:path",
    b"~/x",
    b"~nobody/x",
    b"/x/y",
    b"-3",
    b"tf32",
    b"g++ -O1",
    b"'g++",
)
_GROUPS = (
    knobs.cache, knobs.runtime, knobs.autotuning, knobs.compilation, knobs.language, knobs.nvidia, knobs.amd, knobs.build, knobs.redis
)  # fmt: skip
_OF_GROUPS = {knob.key: (group, name) for group in _GROUPS for name, knob in group.knob_descriptors.items()}


def _seeds() -> list[bytes]:
    targets = (b"cuda:sm_90a", b"cuda:native", b"cpu:x86-64-v4+avx512bf16", b"cuda:sm_80+ptx", b"cpu:native , cuda:sm_75")
    names = [knob.name.encode() for knob in knobs.KNOBS] + [name.encode() for name in _OF_GROUPS]
    return [
        *(b"target\n" + text for text in targets),
        *(name + b"\n" + _VALUES[index % len(_VALUES)] for index, name in enumerate(dict.fromkeys(names))),
    ]


def _run(data: bytes, folder: Path) -> None:
    kind, _, value = data.partition(b"\n")
    if kind == b"target":
        for target in parse_targets([value.decode("utf-8", "surrogateescape")]):
            assert Target.parse(str(target)) == target
            backend_of(target).stages(target, Options())
            str(GPUTarget.of(target))
        return
    name = os.fsdecode(kind.replace(b"\0", b"").replace(b"=", b"")) or "x"
    with mock.patch.dict(os.environ, {name: os.fsdecode(value.replace(b"\0", b""))}):
        if name in _OF_GROUPS:
            group, attribute = _OF_GROUPS[name]
            getattr(group, attribute)
        for knob in knobs.KNOBS:
            if knob.name == name:
                knob.get()
        if name in (knobs.CACHE.name, knobs.DEBUG.name, knobs.LOAD_LIBRARY.name):
            knobs.Knob(name, "1", "", "").is_on()
        knobs.cache_dir()
        knobs.jobs()
        options_of({"num_warps": 4})
        if name == knobs.OP_TARGETS.name:
            op_library_targets()
        if name == knobs.CXX.name:
            knobs.CXX.command("the compiler")


SUBJECT = Subject(
    _seeds, _run, tokens=[b"+", b":", b",", b"sm_", b"native", b"all", b"none", b"cuda", b"cpu", b"sm_90a", *_VALUES[2:]]
)
