"""Names of Triton's host side do what packages use them for: keys of kernels, hooks of stages, what device_caches holds, SASS, ptxas."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelpack.triton as triton
import kernelpack.triton.language as tl
from kernelpack.backends.cuda.device.driver import is_installed
from kernelpack.errors import BuildError, OptionError, TargetError
from kernelpack.simt import Emulator
from kernelpack.triton import knobs
from kernelpack.triton.backends import backends
from kernelpack.triton.backends.compiler import BaseBackend, GPUTarget, Language
from kernelpack.triton.backends.nvidia.compiler import get_ptxas
from kernelpack.triton.compiler import ASTSource, CompiledKernel
from kernelpack.triton.compiler.compiler import get_cache_invalidating_env_vars, get_cache_key, get_cache_manager, make_backend
from kernelpack.triton.language.extra import libdevice
from kernelpack.triton.runtime import driver
from kernelpack.triton.runtime.jit import JITFunction, compute_cache_key, serialize_specialization_data
from kernelpack.triton.tools.disasm import extract, get_sass

CONSTANT = tl.constexpr(2)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path))
    with knobs.runtime.scope(), knobs.compilation.scope():
        yield


def kernel() -> Any:
    """Returns a kernel that nobody has launched."""

    @triton.jit
    def store(out, number, pair, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, number + pair[0] * 12345 + tl.core._unwrap_if_constexpr(CONSTANT))

    return store


def out_of(size: int = 8) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32)


# ---- language ----


def test_kernels_are_written_with_its_language() -> None:
    @triton.jit
    def run(x, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        value = tl.load(x + at)
        tl.static_assert(value.dtype == tl.core.float32)
        tl.store(out + at, libdevice.tanh(value) + tl.math.exp2(value) + tl.sum(tl.extra.cuda.libdevice.floor(value), axis=0))

    x, out = torch.randn(16), torch.zeros(16)
    run[(1,)](x, out, BLOCK=16)
    torch.testing.assert_close(out, torch.tanh(x) + torch.exp2(x) + torch.floor(x).sum())


# ---- keys ----


def bound(fn: Any, *args: Any, **kwargs: Any) -> tuple[str, Any, Any]:
    """Binds a call as copies of Triton's JITFunction.run do. Returns the key, and what was bound."""
    kwargs["debug"] = kwargs.get("debug", fn.debug) or knobs.runtime.debug
    kwargs["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    _, keys, _, backend, binder = fn.device_caches[driver.active.get_current_device()]
    arguments, specialization, options = binder(*args, **kwargs)
    noted = list(specialization)
    if knobs.runtime.add_stages_inspection_hook is not None:
        _, inspected = knobs.runtime.add_stages_inspection_hook()
        noted.append(f'("custom_pipeline", {inspected})')
    return compute_cache_key(keys, noted, options), (backend, kwargs, arguments, specialization, options), arguments


def test_a_computed_key_is_the_one_of_the_launch() -> None:
    fn, out = kernel(), out_of()
    launched = [fn[(1,)](out, 3, (1, 2), BLOCK=8, **options) for options in ({}, {"num_warps": 8})]
    launched += [fn[(1,)](out, 3, (1, 2), BLOCK=4), fn[(1,)](out, 2**40, (1, 2), BLOCK=8)]
    compiled = fn.device_caches[0][0]
    calls: list[Any] = [((out, 3, (1, 2)), {"BLOCK": 8}), ((out, 5, (1, 7), 8), {"num_warps": 8})]
    calls += [((out, 3, (1, 2)), {"BLOCK": 4}), ((out, 2**41, (1, 2)), {"BLOCK": 8})]
    for loaded, (args, kwargs) in zip(launched, calls, strict=True):
        key, _, arguments = bound(fn, *args, **kwargs)
        assert compiled[key] is loaded
        assert list(arguments) == ["out", "number", "pair", "BLOCK"]
        assert isinstance(key, str)
    assert len(compiled) == 4


def test_values_that_look_alike_have_keys_of_their_own() -> None:
    class Odd:
        def __init__(self, value: int) -> None:
            self.value = value

        def __repr__(self) -> str:
            return "Odd"

    keys: dict[Any, str] = {}
    _, _, _, _, binder = kernel().device_caches[0]
    made = []
    for value in (1, True, 1.0, "1", None, (1,), Odd(1), Odd(2), 0.0, -0.0, float("nan"), float("nan"), tl.int32, "int32"):
        _, specialization, options = binder(out_of(), 3, (1, 2), BLOCK=value)
        made.append(compute_cache_key(keys, specialization, options))
    assert len(set(made)) == len(made) - 1  # NaN is one value
    assert made[10] == made[11]


def test_a_key_changes_with_the_hook_of_stages_and_with_debug() -> None:
    fn, out = kernel(), out_of()
    plain, _, _ = bound(fn, out, 3, (1, 2), BLOCK=8)
    debug, _, _ = bound(fn, out, 3, (1, 2), BLOCK=8, debug=True)
    assert plain != debug
    knobs.runtime.add_stages_inspection_hook = lambda *args: ("key", "hash") if not args else None
    inspected, _, _ = bound(fn, out, 3, (1, 2), BLOCK=8)
    assert inspected not in (plain, debug)
    loaded = fn[(1,)](out, 3, (1, 2), BLOCK=8)
    assert fn.device_caches[0][0] == {inspected: loaded}


def test_the_cache_keeps_kernels_under_get_cache_key() -> None:
    fn, out, told = kernel(), out_of(), []
    knobs.compilation.listener = lambda source, metadata, files, times, hit: told.append((source, files))
    fn[(1,)](out, 3, (1, 2), BLOCK=8, num_warps=8)
    ((source, files),) = told
    _, packed, _ = bound(fn, out, 3, (1, 2), BLOCK=8, num_warps=8)
    options, signature, constexprs, attrs = fn._pack_args(*packed)
    for src in (source, ASTSource(fn, signature, constexprs, attrs)):
        key = get_cache_key(src, packed[0], options, get_cache_invalidating_env_vars())
        manager = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
        assert manager.get_file("kernel.bin") == files["kernel.bin"]
    assert get_cache_key(source, packed[0], options, {"TRITON_F32_DEFAULT": "ieee"}) != key


def test_what_is_serialized_by_hand_can_be_preloaded() -> None:
    fn, out = kernel(), out_of()
    key, packed, _ = bound(fn, out, 3, (1, 2), BLOCK=8)
    options, signature, constexprs, attrs = fn._pack_args(*packed)
    target = driver.active.get_current_target()
    name = f"{fn.fn.__module__}.{fn.fn.__qualname__}"
    data = serialize_specialization_data(name, signature, constexprs, attrs, options, key, target)
    assert json.loads(data)["signature"]["pair"] == ["constexpr", "i32"]
    loaded = fn.preload(data)
    assert fn.device_caches[0][0] == {key: loaded}
    assert fn[(1,)](out, 3, (1, 2), BLOCK=8) is loaded
    assert out.tolist() == [3 + 12345 + 2] * 8


def test_kernels_are_not_instrumented() -> None:
    with pytest.raises(OptionError, match=r"store: instrumentation_mode is 'consan', kernels are not instrumented\n  to fix: "):
        kernel()[(1,)](out_of(), 3, (1, 2), BLOCK=8, instrumentation_mode="consan")


# ---- device_caches, _do_compile ----


def test_device_caches_are_what_copies_of_run_take_apart() -> None:
    fn, out = kernel(), out_of()
    assert (len(fn.device_caches), list(fn.device_caches.values())) == (0, [])
    loaded = fn[(1,)](out, 3, (1, 2), BLOCK=8)
    compiled, keys, target, backend, _ = fn.device_caches[driver.active.get_current_device()]
    assert [len(entry[0]) for entry in fn.device_caches.values()] == [1]
    assert list(compiled.values()) == [loaded]
    assert list(keys.values()) == list(compiled)
    assert target == driver.active.get_current_target()
    assert isinstance(backend, backends["cpu"].compiler)
    assert isinstance(loaded, CompiledKernel)
    compiled["mine"] = loaded
    assert fn.device_caches[0][0]["mine"] is loaded
    del compiled["mine"]
    fn.device_caches.clear()
    assert (len(compiled), keys) == (0, {})


def test_every_compilation_goes_through_do_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    fn, out, seen = kernel(), out_of(), []
    compile = JITFunction._do_compile

    def watched(
        self: Any, key: Any, signature: Any, device: Any, constexprs: Any, options: Any, attrs: Any, warmup: Any
    ) -> Any:
        seen.append((key, signature, device, constexprs, options.num_warps, warmup))
        return compile(self, key, signature, device, constexprs, options, attrs, warmup)

    monkeypatch.setattr(JITFunction, "_do_compile", watched)
    for _ in range(2):
        loaded = fn[(1,)](out, 3, (1, 2), BLOCK=8)
    fn.warmup(torch.int32, 3, (1, 2), BLOCK=8, num_warps=8)
    assert [row[1:] for row in seen] == [
        (
            {"out": "*i32", "number": "i32", "pair": ("constexpr", "i32"), "BLOCK": "constexpr"},
            0,
            {(2, 0): 1, (3,): 8},
            warps,
            warmup,
        )
        for warps, warmup in ((4, False), (8, True))
    ]
    assert fn.device_caches[0][0][seen[0][0]] is loaded


def test_a_kernel_compiled_by_hand_is_launched() -> None:
    fn, out = kernel(), out_of()
    key, packed, _ = bound(fn, out, 3, (1, 2), BLOCK=8)
    options, signature, constexprs, attrs = fn._pack_args(*packed)
    loaded = fn._do_compile(key, signature, 0, constexprs, options, attrs, warmup=True)
    assert fn[(1,)](out, 3, (1, 2), BLOCK=8) is loaded
    loaded[(1,)](out, 4, 7)
    assert out.tolist() == [4 + 12345 + 2] * 8


# ---- hooks of stages ----


class Changing:
    """A hook that changes a number in one stage, as packages do that add passes of their own."""

    def __init__(self, stage: str, old: str, new: str) -> None:
        self.stage, self.old, self.new = stage, old, new
        self.seen: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        if not args:
            return f"{self.stage} {self.old} {self.new}", hashlib.sha256(self.new.encode()).hexdigest()
        backend, stages, options, language, capability = args
        self.seen.append((backend, list(stages), options, language, capability))
        made = stages[self.stage]

        def changed(src: Any, metadata: Any) -> Any:
            metadata["changed"] = metadata["num_warps"]
            text = made(src, metadata)
            assert self.old in text
            return text.replace(self.old, self.new)

        stages[self.stage] = changed
        return None


def test_a_hook_replaces_stages_and_what_it_made_is_kept_apart() -> None:
    fn, out, hits = kernel(), out_of(), []
    knobs.compilation.listener = lambda source, metadata, files, times, hit: hits.append(hit)
    results = []
    for hook in (
        None,
        Changing("llir", "12345", "50000"),
        None,
        Changing("llir", "12345", "60000"),
        Changing("llir", "12345", "50000"),
    ):
        knobs.runtime.add_stages_inspection_hook = hook
        for _ in range(2):
            fn[(1,)](out, 3, (4, 2), BLOCK=8)
        results.append(out.unique().item())
    assert results == [3 + 4 * 12345 + 2, 3 + 4 * 50000 + 2, 3 + 4 * 12345 + 2, 3 + 4 * 60000 + 2, 3 + 4 * 50000 + 2]
    assert hits == [False] * 3  # the others are in the process
    fn.device_caches.clear()
    knobs.runtime.add_stages_inspection_hook = hook = Changing("llir", "12345", "50000")
    loaded = fn[(1,)](out, 3, (4, 2), BLOCK=8)
    assert (hits[-1], hook.seen) == (True, [])  # read from the folder
    assert loaded.metadata.changed == 4
    assert "50000" in loaded.asm["llir"]


def test_a_hook_sees_the_backend_and_the_architecture() -> None:
    knobs.runtime.add_stages_inspection_hook = hook = Changing("ptx", "12345", "54321")
    source = ASTSource(kernel(), {"out": "*i32", "number": "i32", "pair": ("i32", "i32")}, {"BLOCK": 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    ((backend, stages, options, language, capability),) = hook.seen
    assert isinstance(backend, BaseBackend)
    assert backend.target == GPUTarget("cuda", 90, 32)
    assert stages == ["ttir", "ttgir", "llir", "ptx", "cubin"]
    assert (options.num_warps, options.arch, language, capability) == (8, "cuda:sm_90a", Language.TRITON, 90)
    assert "54321" in compiled.asm["ptx"]
    assert "54321" in get_sass(compiled.asm["cubin"]) or "0xd431" in get_sass(compiled.asm["cubin"])


def test_a_hook_wraps_ttir_and_may_end_the_stages_early() -> None:
    texts: list[str] = []

    def hook(*args: Any) -> Any:
        if not args:
            return "early", "early"
        stages = args[1]
        ttir = stages["ttir"]

        def shown(src: Any, metadata: Any) -> Any:
            module = ttir(src, metadata)
            texts.append(str(module))
            return module

        stages["ttir"] = shown
        del stages["cubin"]
        return None

    knobs.runtime.add_stages_inspection_hook = hook
    source = ASTSource(kernel(), {"out": "*i32", "number": "i32", "pair": ("i32", "i32")}, {"BLOCK": 128})
    with pytest.raises(BuildError, match="the last stage for cuda:sm_90a, ptx, gave no image: it is a str"):
        triton.compile(source, target="cuda:sm_90a")
    assert "tt.func public @store" in texts[0]


def test_a_hook_that_does_not_say_what_it_does_is_refused() -> None:
    knobs.runtime.add_stages_inspection_hook = lambda *args: None
    with pytest.raises(
        OptionError, match=r"returned None when it was called without arguments\n  to fix: return a key and a hash"
    ):
        kernel()[(1,)](out_of(), 3, (1, 2), BLOCK=8)


def test_the_emulator_runs_what_a_hook_makes() -> None:
    fn, out = kernel(), out_of(128)
    with Emulator("cuda:sm_80"):
        for hook, result in ((None, 12345), (Changing("llir", "12345", "50000"), 50000), (None, 12345)):
            knobs.runtime.add_stages_inspection_hook = hook
            fn[(1,)](out, 0, (4, 2), BLOCK=128)
            assert out.unique().item() == 4 * result + 2


# ---- drivers and backends ----


def test_packages_find_the_active_backend_among_all() -> None:
    active = [backend.driver for backend in backends.values() if backend.driver and backend.driver.is_active()]
    assert active == [type(driver.active)]
    assert ("nvidia" in backends) == is_installed()
    for name, target in (("nvidia", GPUTarget("cuda", 90, 32)), ("cpu", GPUTarget("cpu", "x86-64-v3", 32))):
        kind = type(make_backend(target))
        assert [other for other, backend in backends.items() if backend.compiler.supports_target(target)] in ([name], [])
        assert name not in backends or backends[name].compiler is kind
        assert kind(target).target == target
        assert kind(target).parse_options({"num_warps": 2, "unknown": 3}).num_warps == 2
        assert kind(target).hash() == make_backend(target).hash()
    assert make_backend(GPUTarget("cuda", 80)).hash() != make_backend(GPUTarget("cuda", 90)).hash()
    with pytest.raises(TargetError):
        make_backend(GPUTarget("hexagon", "v73", 1))


def test_another_driver_is_active_until_it_is_reset() -> None:
    mine = type(driver.default)()
    driver.set_active(mine)
    try:
        assert driver.active is triton.runtime.driver.active is mine
    finally:
        driver.reset_active()
    assert driver.active is driver.default


# ---- programs of NVIDIA's ----


def test_get_ptxas_names_a_program_and_its_release() -> None:
    for tool in (get_ptxas(90), get_ptxas()):
        assert Path(tool.path).is_file()
        assert re.fullmatch(r"\d+\.\d+", tool.version)
    with knobs.nvidia.scope():
        knobs.nvidia.ptxas = None
        with pytest.raises(BuildError, match="ptxas was not found"):
            get_ptxas(90)


def test_sass_says_what_the_hardware_is_told_beside_each_instruction(tmp_path: Path) -> None:
    @triton.jit
    def total(x, n, out):
        sum = 0.0
        for i in range(n):
            sum += tl.load(x + i)
        tl.store(out, sum)

    compiled = triton.compile(ASTSource(total, {"x": "*fp32", "n": "i32", "out": "*fp32"}), target="cuda:sm_90a")
    path = tmp_path / "total.cubin"
    path.write_bytes(compiled.asm["cubin"])
    text = extract(str(path), None)
    assert text == extract(path, "total") == get_sass(compiled.asm["cubin"])
    first, *lines = text.splitlines()
    assert first == "Function:total"
    form = re.compile(r"(--|\d\d):[-\d]:[-\d]:[-Y]:[0-9a-f]\t\S.*;|\.L_x_\d+:")
    assert [line for line in lines if not form.fullmatch(line)] == []
    load = next(number for number, line in enumerate(lines) if "LDG" in line)
    barrier = int(lines[load].split(":")[2])  # which the load sets when its result is there
    add = next(line for line in lines[load:] if "FADD" in line)
    assert int(add[:2]) >> barrier & 1
    assert any("BRA `(.L_x_" in line for line in lines)
    with pytest.raises(BuildError, match=r"has no function other\n  to fix: it has total"):
        extract(path, "other")
    path.write_bytes(b"no cubin")
    with pytest.raises(BuildError, match="made no SASS of"):
        extract(path, None)
