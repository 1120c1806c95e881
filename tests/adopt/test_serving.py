"""Launches that take kernels from an adopted folder, and what happens where it does not have them, or was tampered with."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelpack import knobs
from kernelpack.adopt import load
from kernelpack.adopt.kernels import source_of
from kernelpack.adopt.records import read_records
from kernelpack.backends.cpu import backend as cpu
from kernelpack.backends.cpu.facts.features import native_target
from kernelpack.compiler.target_backend import TargetOptions
from kernelpack.errors import MissingKernelError, OptionError, PackError, UntrustedFileError
from kernelpack.runtime import compile, packs
from kernelpack.runtime.ahead_of_time import ASTSource
from kernelpack.target import Target
from tests.adopt.conftest import COMPILE, NAME, Recorded


def added(one: Recorded, n: int = 100, B: int = 128) -> torch.Tensor:
    x = torch.arange(float(n))
    out = torch.zeros_like(x)
    one.module.add[(-(-n // B),)](x, out, n, B=B)
    return out - x


def test_a_launch_takes_its_kernel_from_the_folder(serving: Recorded) -> None:
    told: list[object] = []
    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = knobs.runtime.jit_post_compile_hook = lambda **what: told.append(what)
        assert bool((added(serving) == 1).all())
        assert bool((added(serving, 77) == 1).all())
    assert not told  # nothing was compiled


def test_a_program_can_name_the_folder(serving: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELPACK_PACKS")
    with pytest.raises(MissingKernelError, match="names no folder"):
        added(serving)
    load(serving.folder / "packs")
    assert bool((added(serving) == 1).all())


def test_a_miss_names_the_nearest_variant_and_the_line_that_adopts_it(
    serving: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingKernelError) as raised:
        added(serving, B=64)
    message = str(raised.value)
    assert f"{NAME}:add is not in" in message
    assert "the nearest variant has B=128 where this launch has 64" in message
    line = serving.folder / "line"
    line.write_text(message[message.index("{") :])
    serving.file.write_bytes(serving.file.read_bytes() + line.read_bytes() + b"\n")
    serving.adopt()
    monkeypatch.setattr(packs, "_packs", packs._Packs())
    assert bool((added(serving, B=64) == 1).all())


def test_a_miss_can_warn_or_compile(serving: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "compile_kernel", COMPILE)
    monkeypatch.setenv("KERNELPACK_MISS", "warn")
    with pytest.warns(RuntimeWarning, match="add is not in .*\n.* it is compiled now"):
        assert bool((added(serving, B=32) == 1).all())
    monkeypatch.setenv("KERNELPACK_MISS", "compile")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool((added(serving, B=64) == 1).all())
    monkeypatch.setenv("KERNELPACK_MISS", "never")
    with pytest.raises(OptionError, match="set it to compile, warn or error"):
        added(serving, B=16)


def test_a_source_that_has_changed_is_not_served(serving: Recorded) -> None:
    serving.again(lambda text: text.replace("constexpr(1)", "constexpr(2)"))  # what the kernel reads
    with pytest.raises(MissingKernelError, match="compiled from another source"):
        added(serving)


def test_a_folder_for_other_targets_says_so(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Target.parse("cpu:x86-64-v3" if "v3" not in str(native_target()) else "cpu:x86-64-v4")
    recorded.adopt(target=other)
    monkeypatch.setattr(cpu, "runnable", lambda: (native_target(),))
    load(recorded.folder / "packs")
    monkeypatch.setenv("KERNELPACK_MISS", "error")
    recorded.again()
    with pytest.raises(MissingKernelError, match=f"it is for {re.escape(str(other))}"):
        added(recorded)


def test_code_for_a_lower_level_serves_a_higher_one(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.adopt()
    load(recorded.folder / "packs")
    lower, higher = native_target(), Target("cpu", "x86-64-v4", ("avx512bf16",))
    monkeypatch.setattr(cpu, "runnable", lambda: (higher, lower))
    variant = read_records([recorded.file]).variants[0]
    source, options = source_of(variant)
    found = packs.find(source, higher, TargetOptions(**asdict(options), arch=str(higher)))
    assert found is not None
    assert found.target == lower


def altered(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        file = next(folder.glob(name))
        data = change(file.read_bytes())
        file.unlink()  # a process that has the old one loaded keeps it
        file.write_bytes(data)

    return alter


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (altered("*.so", lambda data: data[:-1] + b"!"), "was altered: its SHA-256"),
        (altered("*.bin", lambda data: data[: len(data) // 2]), "was altered: its SHA-256"),
        (altered("kernels.json", lambda data: data[:-40]), "is no index that kernelpack adopt wrote"),
        (altered("kernels.json", lambda data: data.replace(b'"0.1.0"', b'"0.0.9"')), "was written by kernelpack 0.0.9"),
        (altered("kernels.json", lambda data: data.replace(b'packs": 1', b'packs": 2')), "expected"),
        (lambda folder: next(folder.glob("*.so")).unlink(), "cannot be read: No such file"),
        (lambda folder: shutil.rmtree(folder), "name a folder that kernelpack adopt wrote"),
    ],
    ids=["library", "images", "index", "version", "format", "no library", "no folder"],
)
def test_what_was_tampered_with_is_refused(serving: Recorded, alter: Callable[[Path], None], message: str) -> None:
    alter(serving.folder / "packs")
    with pytest.raises(PackError, match=message):
        added(serving)


def test_a_folder_that_others_can_write_to_is_refused(serving: Recorded) -> None:
    (serving.folder / "packs").chmod(0o777)
    with pytest.raises(UntrustedFileError, match="can be written by others"):
        added(serving)


def test_two_folders_may_have_a_kernel_if_its_code_is_one(serving: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = serving.folder / "packs", serving.folder / "others"
    shutil.copytree(first, second)
    monkeypatch.setenv("KERNELPACK_PACKS", f"{first}:{second}")
    assert bool((added(serving) == 1).all())
    index = json.loads((second / "kernels.json").read_text())
    index["kernels"][0]["variants"][0]["code sha256"] = "0" * 64
    (second / "kernels.json").write_text(json.dumps(index))
    monkeypatch.setattr(packs, "_packs", packs._Packs())
    serving.again()
    index["kernels"][0]["variants"].insert(0, {**index["kernels"][0]["variants"][0], "key": "another"})
    (second / "kernels.json").write_text(json.dumps(index))
    with pytest.raises(PackError, match=f"have different code of one variant of {NAME}:add"):
        added(serving)
    assert packs._packs.find("another") is None  # nothing of a folder that was refused


@pytest.mark.parametrize("name", ["tuned", "tuned_by_its_own"])
def test_a_recorded_search_is_not_made_again(name: str, recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(512.0)

    def doubled() -> tuple[torch.Tensor, object]:
        tuned, out = getattr(recorded.module, name), torch.empty_like(x)
        tuned[lambda meta: (-(-512 // meta["B"]),)](x, out, 512)
        return out, str(tuned.best_config)

    found, chosen = doubled()
    record = read_records([recorded.file])
    assert sum(one.said["backend"] == "cpu" for one in record.variants if one.name == name) == 1  # the one that won
    recorded.adopt()
    recorded.again()
    load(recorded.folder / "packs")
    monkeypatch.setenv("KERNELPACK_MISS", "error")
    monkeypatch.setattr(getattr(recorded.module, name), "_bench", lambda *_, **__: pytest.fail("it searched"))
    assert doubled()[1] == chosen
    assert torch.equal(doubled()[0], found)
    assert torch.equal(found, 2 * x)


def test_serving_needs_no_llvm(serving: Recorded) -> None:
    program = serving.folder / "program.py"
    program.write_text(
        f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "cuda", "nvidia", "pybind11", "zstandard", "ninja"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import torch
import {NAME}

x = torch.arange(100.0)
out = torch.zeros_like(x)
{NAME}.add[(1,)](x, out, 100, B=128)
assert bool((out - x == 1).all())
assert not {{"kernelpack.passes", "kernelpack.compiler.stages", "kernelpack.frontend.ast_to_ttir"}} & set(sys.modules)
try:
    {NAME}.add[(1,)](x, out, 100, B=64)
except Exception as problem:
    print(type(problem).__name__)
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, cwd=serving.folder)
    assert (done.stdout, done.returncode) == ("MissingKernelError\n", 0), done.stderr


def test_what_host_code_compiles_by_itself_is_served_too(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor launches what triton.compile returns."""
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "B": "constexpr"}

    def compiled() -> Any:
        return compile.compile(ASTSource(recorded.module.add, signature, {"B": 32}))

    compiled()
    recorded.adopt()
    recorded.again()
    load(recorded.folder / "packs")
    monkeypatch.setattr(compile, "compile_kernel", lambda *_: pytest.fail("it compiled"))
    x = torch.arange(100.0)
    out = torch.empty_like(x)
    compiled()[(4,)](x, out, 100)
    assert bool((out == x + 1).all())
