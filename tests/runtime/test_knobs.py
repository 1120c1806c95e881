"""kernelpack.knobs: what a program sets goes before its environment, and every switch has its effect."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack import knobs
from kernelpack.backends.installed import backends
from kernelpack.errors import BuildError, CompilationError, OptionError, TargetError
from kernelpack.knobs.hooks import WATCHERS
from kernelpack.pack.ninja import compiler
from kernelpack.runtime.driver import _default_driver
from kernelpack.target import GPUTarget

GROUPS = (knobs.cache, knobs.runtime, knobs.autotuning, knobs.compilation, knobs.language, knobs.nvidia, knobs.amd, knobs.build)


@pytest.fixture(autouse=True)
def scopes() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for group in GROUPS:
            stack.enter_context(group.scope())
        yield


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: type(group).__name__)
def test_variables_set_switches(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, knob in group.knob_descriptors.items():
        if isinstance(knob, (knobs.env_bool, knobs.env_opt_bool)):
            monkeypatch.delenv(knob.key, raising=False)
            usual = getattr(group, name)
            monkeypatch.setenv(knob.key, "OFF" if usual else "True")
            assert getattr(group, name) is not usual, knob.key
        elif isinstance(knob, (knobs.env_str, knobs.env_opt_str)):
            monkeypatch.setenv(knob.key, "/somewhere")
            assert getattr(group, name) == "/somewhere", knob.key


@pytest.mark.parametrize("text", ["maybe", "2", "yes!"])
def test_switches_that_are_neither_on_nor_off_are_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {knob.name: knob.is_on for knob in (knobs.CACHE, knobs.DEBUG, knobs.LOAD_LIBRARY)}
    for group in GROUPS:
        for name, knob in group.knob_descriptors.items():
            if isinstance(knob, (knobs.env_bool, knobs.env_opt_bool)):
                asked[knob.key] = lambda group=group, name=name: getattr(group, name)
    assert len(asked) > 10
    for key, ask in asked.items():
        with monkeypatch.context() as changed:
            changed.setenv(key, text)
            with pytest.raises(OptionError) as raised:
                ask()
        assert str(raised.value).startswith(f"{key}={text} is neither on nor off")
        assert "1, true, on, y, yes, or of 0, false, off, n, no, or unset it" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "on"), [("1", True), ("ON", True), ("y", True), ("0", False), ("no", False), ("False", False)]
)
def test_switches_take_words(text: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in (knobs.CACHE, knobs.DEBUG, knobs.LOAD_LIBRARY):
        monkeypatch.setenv(knob.name, text)
        assert knob.is_on() is on
    assert (knobs.cache_dir() is not None) is on


@pytest.mark.parametrize("text", ["1", "sm_90", "cuda:sm_99", "cpu:native"])
def test_a_target_to_emulate_that_there_is_not_is_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_EMULATE", text)
    with pytest.raises(OptionError) as raised:
        _default_driver()
    assert str(raised.value).startswith(f"KERNELPACK_EMULATE={text}: ")
    assert "to fix: set it to one of cuda:sm_80, " in str(raised.value)


def test_the_level_of_the_cpu_is_that_of_the_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    @kp.jit
    def one(out):
        tl.store(out, 1.0)

    lowest = backends()["cpu"].devices()[0].targets[-1]
    monkeypatch.setenv("KERNELPACK_CPU_TARGET", str(lowest))
    out = torch.zeros(1)
    assert one[(1,)](out).kernel.target == lowest
    assert out.item() == 1
    for text in ("v3", "cpu:aarch64", "cuda:sm_80"):
        monkeypatch.setenv("KERNELPACK_CPU_TARGET", text)
        with pytest.raises(
            OptionError, match=f"KERNELPACK_CPU_TARGET={text} is no target that this CPU runs\n  to fix: .*{lowest}"
        ):
            one[(1,)](torch.zeros(1, dtype=torch.float64))


def test_other_words_for_the_precision_and_the_architecture_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    @kp.jit
    def product(out):
        x = tl.full([16, 16], 1.0, tl.float32)
        tl.store(out, tl.sum(tl.dot(x, x)))

    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf64")
    with pytest.raises(CompilationError, match=r"TRITON_F32_DEFAULT .* cannot be 'tf64'(.|\n)*use one of 'ieee', 'tf32'"):
        product[(1,)](torch.zeros(1))
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm31")
    x = SimpleNamespace(device=torch.device("cuda", 0), dtype=torch.float32, data_ptr=lambda: 16)
    with pytest.raises(TargetError, match=r"TRITON_OVERRIDE_ARCH=sm31: .*'sm_31' is not supported(.|\n)*use one of cuda:sm_80"):
        product.warmup(x, grid=(1,))


def test_a_compiler_with_options_is_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spaced = tmp_path / "a folder" / "cxx"
    spaced.parent.mkdir()
    spaced.write_text("#!/bin/sh\n")
    spaced.chmod(0o755)
    for text, words in (
        ("g++ -O0", ["g++", "-O0"]),
        ("env LANG=C g++ '-DX=a b'", ["env", "LANG=C", "g++", "-DX=a b"]),
        (str(spaced), [str(spaced)]),
    ):
        monkeypatch.setenv("KERNELPACK_CXX", text)
        assert compiler() == words
    monkeypatch.setenv("KERNELPACK_CXX", "g+++ -O0")
    with pytest.raises(BuildError, match=r"the C\+\+ compiler 'g\+\+\+' was not found(.|\n)*KERNELPACK_CXX='ccache g"):
        compiler()
    monkeypatch.setenv("KERNELPACK_CXX", "g++ '-O0")
    with pytest.raises(BuildError, match="KERNELPACK_CXX=g\\+\\+ '-O0 is no command: No closing quotation"):
        compiler()


@pytest.mark.parametrize(
    ("text", "said"), [("true", ""), ("echo V13.0.0", "no cubin"), ("false", ""), ("echo nothing", "'nothing'")]
)
def test_what_is_no_assembler_is_named(text: str, said: str, tmp_path: Path) -> None:
    program = tmp_path / "assembler"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    knobs.nvidia.ptxas = str(program)

    @kp.jit
    def kernel(out):
        tl.store(out, 1.0)

    source = kp.ASTSource(kernel, {"out": "*fp32"}, {})
    with pytest.raises(BuildError) as raised:
        kp.compile(source, target=GPUTarget("cuda", 80, 32))
    assert str(program) in str(raised.value)
    assert said in str(raised.value)
    assert "set KERNELPACK_PTXAS_PATH to NVIDIA's ptxas" in str(raised.value)


def test_what_the_program_sets_goes_first_and_reaches_child_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs.language.default_fp_fusion = False
    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == "0"
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    assert knobs.language.default_fp_fusion is False
    assert knobs.language.copy().default_fp_fusion is False
    with knobs.language.scope():
        del knobs.language.default_fp_fusion
        assert knobs.language.default_fp_fusion is True
        knobs.language.fp32_default = "ieee"
    assert knobs.language.knobs == {"default_fp_fusion": False, "fp32_default": None}
    assert "TRITON_F32_DEFAULT" not in os.environ
    knobs.language.default_fp_fusion = knobs.env
    assert knobs.language.default_fp_fusion is True
    knobs.language.fp32_default = "tf32"
    knobs.language.fp32_default = None
    assert "TRITON_F32_DEFAULT" not in os.environ
    monkeypatch.setattr(knobs, "propagate_env", False)
    knobs.amd.use_block_pingpong = True
    assert "TRITON_HIP_USE_BLOCK_PINGPONG" not in os.environ
    assert knobs.amd.reset().use_block_pingpong is None


def test_other_groups_are_made_of_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(knobs.base_knobs):
        name: Any = knobs.env_str("MY_NAME", "nobody")
        count: Any = knobs.env_int("MY_COUNT", 3)
        kind: Any = knobs.env_class("MY_KIND")

    mine = Mine()
    assert mine.knobs == {"name": "nobody", "count": 3, "kind": None}
    monkeypatch.setenv("MY_COUNT", "7")
    monkeypatch.setenv("MY_KIND", "kernelpack.runtime.cache:FileCacheManager")
    assert (mine.count, mine.kind.__name__) == (7, "FileCacheManager")
    monkeypatch.setenv("MY_COUNT", "seven")
    with pytest.raises(OptionError, match="MY_COUNT=seven is no whole number"):
        print(mine.count)
    monkeypatch.setenv("MY_KIND", "nowhere:Nothing")
    with pytest.raises(OptionError, match="MY_KIND=nowhere:Nothing names no class: No module named 'nowhere'"):
        print(mine.kind)
    with pytest.raises(AttributeError, match="Mine has no 'nmae'; it has count, kind, name"):
        mine.nmae = "x"


def test_interpreting_is_a_switch_of_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    knobs.refresh_knobs()
    assert knobs.runtime in WATCHERS
    monkeypatch.delenv("TRITON_INTERPRET")
    knobs.refresh_knobs()
    assert knobs.runtime not in WATCHERS


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KERNELPACK_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "KERNELPACK_CACHE"):
        monkeypatch.delenv(name, raising=False)
    assert knobs.cache.dir == str(Path.home() / ".cache" / "kernelpack")
    assert knobs.cache.dump_dir == str(Path.home() / ".triton" / "dump")
    monkeypatch.setenv("TRITON_HOME", "/home/other")
    assert (knobs.cache.dir, knobs.cache.dump_dir) == ("/home/other/.triton/cache", "/home/other/.triton/dump")
    knobs.cache.home_dir = "/home/third"
    assert (knobs.cache.dir, knobs.cache.override_dir) == ("/home/third/.triton/cache", "/home/third/.triton/override")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/caches/triton")
    assert knobs.cache.dir == "/caches/triton"
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", "~/caches")
    assert knobs.cache_dir() == Path.home() / "caches"
    knobs.cache.dir = str(tmp_path)
    assert knobs.cache_dir() == tmp_path


def test_every_stage_is_dumped(tmp_path: Path) -> None:
    @kp.jit
    def dumped(out):
        tl.store(out, 1.0)

    knobs.compilation.dump_ir, knobs.cache.dump_dir = True, str(tmp_path)
    kernel = dumped.warmup(torch.float32, grid=(1,))
    (folder,) = tmp_path.iterdir()
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"dumped.{stage}" for stage in kernel.asm)
    assert (folder / "dumped.ttir").read_text() == kernel.asm["ttir"]


def test_the_assembler_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path / "cache"))
    ptxas = knobs.nvidia.ptxas
    if ptxas is None:
        pytest.skip("no ptxas here")
    log, chosen = tmp_path / "log", tmp_path / "ptxas"
    chosen.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {ptxas.path} "$@"\n')
    chosen.chmod(chosen.stat().st_mode | stat.S_IXUSR)
    knobs.nvidia.ptxas, knobs.nvidia.ptxas_options = str(chosen), "--warn-on-spills -O2"
    assert knobs.nvidia.ptxas.version == ptxas.version
    assert backends()["cuda"].tool_versions()["assembler"].endswith(" --warn-on-spills -O2")

    @kp.jit
    def kernel(out):
        tl.store(out, 1.0)

    source = kp.ASTSource(kernel, {"out": "*fp32"}, {})
    compiled = kp.compile(source, target=GPUTarget("cuda", 80, 32))
    assert "--warn-on-spills -O2 /dev/stdin" in log.read_text()
    if knobs.nvidia.nvdisasm is not None:
        assert "STG.E" in compiled.asm["sass"]
    with pytest.raises(KeyError, match="hsaco: there is ttir, ttgir"):
        print(compiled.asm["hsaco"])
    with pytest.raises(BuildError, match="/nowhere/ptxas is no program"):
        knobs.nvidia.ptxas = "/nowhere/ptxas"


@pytest.mark.parametrize("name", ["KERNELPACK_CACHE_DIR", "TRITON_HOME"])
def test_the_home_of_nobody_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELPACK_CACHE_DIR", raising=False)  # which stands before TRITON_HOME
    monkeypatch.setenv(name, "~no-such-user/x")
    with pytest.raises(OptionError, match=r"there is no home for ~no-such-user.*\n  to fix: set KERNELPACK_CACHE_DIR"):
        knobs.cache_dir()
