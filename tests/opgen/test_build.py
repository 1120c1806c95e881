"""Builds compile what changed and nothing else, each thing once, and say where an error is."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelpack import knobs
from kernelpack.errors import BuildError, CompilationError, KernelpackError, SchemaError
from kernelpack.ir.core import Operation
from kernelpack.ir.text import parse_module
from kernelpack.opgen.build import Built, build, library_plan, plan_library
from kernelpack.opgen.emit.cpp_library import library_files
from kernelpack.opgen.emit.print_fake import print_fakes
from kernelpack.opgen.emit_source import emit_source
from kernelpack.opgen.workers import compile
from kernelpack.opgen.workers.compile import Progress, compile_variants
from kernelpack.opgen.workers.worker import CompileJob, _Worker, compile_all
from kernelpack.options import Options
from kernelpack.pack.format import parse_pack
from kernelpack.pack.ninja import one_at_a_time
from kernelpack.target import Target

HEAD = """
import kernelpack as kp
import kernelpack.language as tl
"""
SCALE = (
    HEAD
    + """

@kp.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


@kp.op("scale(Tensor x) -> Tensor", variants={"x": [tl.float32, tl.float16]})
def scale(x):
    out = kp.empty_like(x)
    scale_kernel[(kp.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""
)
TOTAL = (
    HEAD
    + """

@kp.jit
def add(a, b):
    return a + b


@kp.jit
def total_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out, add(tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0), axis=0), 0.0))


@kp.op("total(Tensor x) -> Tensor", variants={"x": [tl.float32]})
def total(x):
    out = kp.empty((), x.dtype, x.device)
    total_kernel[(1,)](x, out, x.numel(), BLOCK=1024)
    return out
"""
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compile, "_compiler_hash", lambda: "the compiler")  # its source may change while tests run


def compiled(folder: Path, target: str = "cpu:x86-64-v3") -> list[str]:
    """Returns the kernels that a build of a folder's ops compiles now."""
    plan = plan_library([folder], namespace="mine", targets=[target])
    return [name.partition(" ")[0] for name in compile_variants(plan.variants, jobs=2)[1]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "ops"
    folder.mkdir()
    (folder / "scale.py").write_text(SCALE)
    (folder / "total.py").write_text(TOTAL)
    return folder


SCALES = ["scale_kernel-f16.any", "scale_kernel-f32.any"]


def test_only_the_variants_of_a_changed_kernel_are_compiled(folder: Path) -> None:
    assert compiled(folder) == [*SCALES, "total_kernel.any"]
    assert compiled(folder) == []
    (folder / "scale.py").write_text(SCALE.replace("* 2", "* 3"))
    assert compiled(folder) == SCALES
    (folder / "total.py").write_text(TOTAL.replace("return a + b", "return a + b + 1.0"))  # a kernel that a kernel calls
    assert compiled(folder) == ["total_kernel.any"]
    (folder / "scale.py").write_text("# a comment moves every line\n" + SCALE.replace("* 2", "* 3"))
    assert compiled(folder) == []
    (folder / "scale.py").write_text(SCALE.replace("256", "128").replace("* 2", "* 3"))  # another constexpr
    assert compiled(folder) == SCALES
    (folder / "scale.py").write_text(SCALE)  # back: still known
    assert compiled(folder) == []


PRODUCT = (
    HEAD
    + """

@kp.jit
def product_kernel(x, out, SIDE: tl.constexpr):
    offsets = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    tile = tl.load(x + offsets)
    tl.store(out + offsets, tl.dot(tile, tile))


@kp.op("product(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs=CONFIGS)
def product(x):
    out = kp.empty_like(x)
    product_kernel[(1,)](x, out, SIDE=16)
    return out
"""
)


def test_the_precision_that_a_variable_states_decides_what_is_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "product.py").write_text(PRODUCT.replace(", configs=CONFIGS", ""))
    plan = functools.partial(plan_library, [folder / "product.py"], namespace="mine", targets=["cuda:sm_80"])
    rounded = compile_variants(plan().variants)[0]
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    exact = compile_variants(plan().variants)[0]
    assert rounded.keys() == exact.keys()
    assert not {pack.code_sha256 for pack in rounded.values()} & {pack.code_sha256 for pack in exact.values()}
    for pack in exact.values():
        assert "option: default_dot_input_precision = ieee\n" in str(pack)
        assert parse_pack(str(pack)) == pack
    assert compile_variants(plan().variants)[1] == ()  # kept
    monkeypatch.delenv("TRITON_F32_DEFAULT")
    assert compile_variants(plan().variants) == (rounded, ())


DOUBLE = (
    HEAD
    + """

@kp.jit(debug=True)
def double_kernel(x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


@kp.op("double_(Tensor(a!) x) -> ()", variants={"x": [tl.int32]})
def double_(x):
    double_kernel[(1,)](x, BLOCK=256)
    double_kernel[(1,)](x, BLOCK=256, sanitize_overflow=False)
"""
)


def test_launches_that_check_overflow_and_not_are_compiled_each_for_itself(folder: Path) -> None:
    (folder / "double.py").write_text(DOUBLE)
    plan = plan_library([folder / "double.py"], namespace="mine", targets=["cpu:x86-64-v3"])
    packs = compile_variants(plan.variants, jobs=1)[0]
    checked = {pack.options.sanitize_overflow: b"overflow" in pack.image for pack in packs.values()}
    assert checked == {True: True, False: False}


def test_kernels_that_read_plain_globals_are_compiled_each_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys do not say what the globals hold."""
    (folder / "scale.py").write_text(SCALE.replace("* 2", "* FACTOR").replace("@kp.jit", "FACTOR = 2\n\n\n@kp.jit"))
    monkeypatch.setenv("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    plan = plan_library([folder / "scale.py"], namespace="mine", targets=["cpu:x86-64-v3"])
    assert len(compile_variants(plan.variants)[1]) == 2
    assert len(compile_variants(plan.variants)[1]) == 2
    monkeypatch.delenv("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")
    with pytest.raises(CompilationError, match="FACTOR"):
        compile_variants(plan.variants)


def test_scripts_beside_ops_are_not_run(folder: Path) -> None:
    (folder / "use.py").write_text("import kernelpack\nkernelpack.load('mine')\n")
    (folder / "bench.py").write_text(
        "import kernelpack as kp\n@kp.jit\ndef own():\n    pass\nraise AssertionError('a script')\n"
    )
    plan = plan_library([folder], namespace="mine", targets=["cpu:x86-64-v3"])
    assert [op.name for op in plan.ops] == ["scale", "total"]
    with pytest.raises(BuildError, match=r"use\.py:2: .*mine holds no op library"):
        plan_library([folder / "use.py"], namespace="mine", targets=["cpu:x86-64-v3"])


@pytest.mark.parametrize(
    "text",
    [
        "from kernelpack import op\ndef f(x):\n    x.dim()\nop('f(Tensor x) -> ()', variants={})(f)\n",
        "from ._wrapper import made\n@made\ndef f(x):\n    x.dim()\n",
    ],
)
def test_files_that_make_ops_otherwise_than_by_kp_op_are_no_scripts(folder: Path, text: str) -> None:
    (folder / "made.py").write_text(text)
    (folder / "_wrapper.py").write_text(
        "import kernelpack as kp\ndef made(fn):\n    return kp.op('f(Tensor x) -> ()', variants={})(fn)\n"
    )
    with pytest.raises(SchemaError, match="'f' has no result"):
        plan_library([folder], namespace="mine", targets=["cpu:x86-64-v3"])


def test_a_build_without_changes_touches_nothing(folder: Path, tmp_path: Path) -> None:
    def run() -> tuple[Built, dict[Path, int]]:
        built = build([folder], namespace="mine", targets=["cpu:x86-64-v3"], out=tmp_path / "mine", jobs=2)
        outside = [path for path in built.directory.rglob("*") if path.is_file() and path.name != ".ninja_log"]
        return built, {path: path.stat().st_mtime_ns for path in outside}

    again = SCALE[SCALE.index("@kp.op") :].replace("scale(", "again(").replace("def scale", "def again")  # of the same kernels
    (folder / "scale.py").write_text(SCALE + "\n\n" + again)
    first, before = run()
    second, after = run()
    assert first.ops == ("scale", "again", "total")
    assert (len(first.compiled), second.compiled) == (3, ())
    assert before == after
    (folder / "total.py").unlink()
    third, left = run()
    assert third.compiled == ()
    assert {path.name for path in before.keys() - left.keys()} >= {"total_kernel.any.cpu_x86_64_v3.kpack", "op_total.cpp"}
    assert "total" not in third.library.read_bytes().decode("latin-1")


def test_code_that_this_machine_cannot_link_is_refused_before_it_is_compiled(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"links libraries for x86_64, these targets are code for aarch64") as refused:
        build([folder], namespace="mine", targets=["cpu:aarch64"], out=tmp_path / "mine")
    assert "--emit-source" in str(refused.value)
    assert "set KERNELPACK_CXX to a compiler for it, such as aarch64-linux-gnu-g++" in str(refused.value)
    targets = ["cpu:x86-64-v3", "cpu:aarch64", "cuda:sm_80"]
    with pytest.raises(BuildError, match=r"cpu:x86-64-v3 and cpu:aarch64 are code for different machines"):
        emit_source([folder], namespace="mine", targets=targets, directory=tmp_path / "source")


def test_a_result_without_dimensions_has_a_fake(folder: Path) -> None:
    plan = plan_library([folder], namespace="mine", targets=["cpu:x86-64-v3"])
    assert "out = empty((), x.dtype, x.device)" in print_fakes(plan.op_plans, "mine")


def test_a_corrupt_cache_is_compiled_anew(folder: Path, tmp_path: Path) -> None:
    compiled(folder)
    for path in (tmp_path / "cache").rglob("*.kpack"):
        os.truncate(path, path.stat().st_size // 2)
    assert len(compiled(folder)) == 3
    assert compiled(folder) == []


# -- what specialised variants add ------------------------------------------------------------------------------------------


def rows(folder: Path, target: str) -> list[str]:
    plan = plan_library([folder], namespace="mine", targets=[target])
    return [pack.variant for pack in compile_variants(plan.variants, jobs=2)[0].values()]


def test_no_specialised_variant_where_a_backend_assumes_nothing(folder: Path) -> None:
    plan = plan_library([folder], namespace="mine", targets=["cpu:x86-64-v3", "cuda:sm_80"])
    assert [variant.name for variant in plan.variants if variant.target.backend == "cpu"] == [*SCALES, "total_kernel.any"]
    assert [variant.name for variant in plan.variants if variant.target.backend == "cuda"] == [
        "scale_kernel-f16.aligned", "scale_kernel-f16.any", "scale_kernel-f32.aligned", "scale_kernel-f32.any",
        "total_kernel.aligned", "total_kernel.any",
    ]  # fmt: skip


def test_a_config_can_leave_out_specialised_variants(folder: Path) -> None:
    config = 'configs={"cuda": lambda point: kp.Config({}, specialize=point["x"] == tl.float16)})'
    (folder / "scale.py").write_text(SCALE.replace("tl.float16]})", f"tl.float16]}}, {config}"))
    names = [variant.name for variant in plan_library([folder / "scale.py"], namespace="mine", targets=["cuda:sm_80"]).variants]
    assert names == ["scale_kernel-f16.aligned", "scale_kernel-f16.any", "scale_kernel-f32.any"]


def test_a_specialised_variant_whose_code_is_the_same_is_packed_once(folder: Path) -> None:
    """What is known of an address that is not used, or used one element at a time, changes no code."""
    (folder / "scale.py").write_text(SCALE.replace("BLOCK=256", "BLOCK=1").replace("256", "1"))
    assert rows(folder, "cuda:sm_80") == [
        "scale_kernel-f16.any",
        "scale_kernel-f32.any",
        "total_kernel.aligned",
        "total_kernel.any",
    ]
    assert compiled(folder, "cuda:sm_80") == []  # the cache knows both
    plan = plan_library([folder], namespace="mine", targets=["cuda:sm_80"])
    code = library_files(library_plan(plan, compile_variants(plan.variants)[0]))["op_scale.cpp"]
    assert "scale_kernel-f32.any" in code
    assert "aligned" not in code
    assert "facts" not in code.partition("class")[2]


# -- errors -----------------------------------------------------------------------------------------------------------------


def test_an_error_of_a_backend_names_the_line(folder: Path) -> None:
    asm = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + offsets).to(tl.int32)], tl.int32, True, 1)'
    bad = SCALE.replace("* 2, mask", f"* 2 + {asm}, mask")
    (folder / "scale.py").write_text(bad)
    with pytest.raises(CompilationError, match=r"scale.py:9:\d+: .*tt.elementwise_inline_asm cannot be compiled for cpu"):
        compiled(folder)


def test_an_error_of_the_front_end_names_the_line_and_stops_the_build(folder: Path) -> None:
    (folder / "total.py").write_text(TOTAL.replace("axis=0)", "axis=5)", 1))
    with pytest.raises(KernelpackError, match=r"total.py:14:\d+: "):
        compiled(folder)


def test_progress_counts_every_kernel(folder: Path) -> None:
    seen: list[Progress] = []
    plan = plan_library([folder], namespace="mine", targets=["cpu:x86-64-v3"])
    compile_variants(plan.variants, jobs=2, progress=seen.append)
    assert [(progress.done, progress.total) for progress in seen] == [(1, 3), (2, 3), (3, 3)]
    assert all(" for cpu:x86-64-v3" in progress.what for progress in seen)
    seen.clear()
    compile_variants(plan.variants, jobs=2, progress=seen.append)
    assert [(progress.done, progress.what) for progress in seen] == [(3, "kernels from the cache")]


def job(name: str, make_ttir: Callable[[], Operation]) -> CompileJob:
    return CompileJob(name, name, make_ttir, Target.parse("cpu:x86-64-v3"), Options(), ())


def empty_kernel() -> Operation:
    return parse_module("tt.func public @kernel() { tt.return }")


def test_builds_of_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    entered: list[str] = []

    def second() -> None:
        with one_at_a_time(tmp_path / "build"):
            entered.append("second")

    thread = threading.Thread(target=second)
    with one_at_a_time(tmp_path / "build"):
        thread.start()
        thread.join(0.2)
        entered.append("first")
    thread.join()
    assert entered == ["first", "second"]


def test_a_compiler_that_dies_is_named_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fatal() -> Operation:
        os.write(2, b"LLVM ERROR: of its own")
        os.kill(os.getpid(), signal.SIGKILL)  # as LLVM's fatal errors do
        raise AssertionError

    results = compile_all(
        [job("one", empty_kernel), job("fatal", fatal), job("two", empty_kernel)], 1, lambda task, result: None
    )
    assert isinstance(results[1], BuildError)
    assert "died (exit status -9) while it compiled fatal for cpu:x86-64-v3\nLLVM ERROR: of its own" in str(results[1])
    assert [results[index].entry for index in (0, 2)] == ["one", "two"]


def test_processes_do_not_wait_for_each_other_to_end() -> None:
    """Each holds copies of the pipes that were there when it was forked, also in the place of one that died."""

    def fatal() -> Operation:
        os._exit(3)

    jobs = [job(str(number), fatal if number % 2 else functools.partial(empty_kernel)) for number in range(12)]
    results = compile_all(jobs, 4, lambda task, result: None)
    assert [isinstance(result, BuildError) for result in results] == [bool(number % 2) for number in range(12)]


def test_a_process_keeps_its_pipes_where_they_have_the_numbers_of_one_that_died() -> None:
    died = _Worker([job("one", empty_kernel)], [])
    died.close()
    spare = os.dup(2)  # what follows takes the next numbers
    worker = _Worker([job("two", empty_kernel)], [died])
    os.close(spare)
    result = worker.run(0)
    if not worker.dead:
        worker.close()
    assert result.entry == "two"


def test_neighbours_with_the_same_ttir_are_compiled_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    run, workers = _Worker.run, dict[int, _Worker]()

    def noted(self: _Worker, index: int) -> object:
        workers[index] = self
        return run(self, index)

    monkeypatch.setattr(_Worker, "run", noted)
    made = multiprocessing.get_context("fork").Value("i", 0)

    def make() -> Operation:
        made.value += 1
        return empty_kernel()

    results = compile_all([job(name, make) for name in ("one", "two", "three")], 2, lambda task, result: None)
    assert len(set(workers.values())) == made.value == 1
    assert [result.entry for result in results] == ["one", "two", "three"]
    assert all(result.entry.encode() in result.image for result in results)


BUFFERS = (
    HEAD
    + """
from kernelpack.language import hopper

@kp.jit
def through_shared_memory(x):
    tile = hopper.local_alloc([8, 64], tl.float16)
    place = x + tl.arange(0, 8)[:, None] * 64 + tl.arange(0, 64)[None, :]
    hopper.local_store(tile, tl.load(place))
    tl.store(place, hopper.local_load(tile))


@kp.op("pass_through(Tensor(a!) x) -> ()", variants={"x": [tl.float16]})
def pass_through(x):
    through_shared_memory[(1,)](x)
"""
)


def test_fresh_processes_know_what_kernels_say_of_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "buffers.py").write_text(BUFFERS)
    plan = plan_library([tmp_path / "buffers.py"], namespace="buffers", targets=["cuda:sm_90a"])
    packs, _ = compile_variants(plan.variants, jobs=1, cache=False)
    assert {pack.metadata["shared"] for pack in packs.values()} == {8 * 64 * 2}


def test_an_error_of_the_front_end_ends_the_processes() -> None:
    def wrong() -> Operation:
        raise CompilationError("no second one")

    done: list[str] = []
    jobs = [job("one", empty_kernel), job("two", wrong), *(job(f"late{number}", empty_kernel) for number in range(50))]
    with pytest.raises(CompilationError, match="no second one"):
        compile_all(jobs, 1, lambda task, result: done.append(task.name))
    assert done == ["one"]


@pytest.mark.parametrize("value", ["0", "-1", "two", "1" * 5000, "²", "10000"])
def test_a_number_of_processes_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("KERNELPACK_JOBS", value)
    with pytest.raises(BuildError, match=f"KERNELPACK_JOBS={value[:40]} is no number of processes"):
        knobs.jobs()


def test_a_compiler_that_is_none_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_CXX", "/bin/true")
    with pytest.raises(BuildError, match="/bin/true -dumpmachine failed: it names no machine"):
        build([folder], namespace="mine", targets=["cpu:x86-64-v3"], out=folder / "mine")


def test_a_launch_for_other_devices_needs_no_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SCALE.replace(
        'variants={"x": [tl.float32, tl.float16]})',
        'variants={"x": [tl.float32]}, configs={"cpu": lambda point: None if point.kernel == "negate_kernel" else kp.Config({})})',
    ).replace(
        "    scale_kernel[(",
        "    if x.is_cuda:\n        negate_kernel[(x.numel(),)](x, out)\n    else:\n        scale_kernel[(",
    )
    kernel = """
@kp.jit
def negate_kernel(x, out):
    tl.store(out + tl.program_id(0), -tl.load(x + tl.program_id(0)))


@kp.jit
def scale_kernel"""
    file = tmp_path / "negates.py"
    file.write_text(source.replace("\n@kp.jit\ndef scale_kernel", kernel))
    built = build([file], namespace="negates", targets=["cpu:native"], out=tmp_path / "out")
    assert {name.partition(".")[0] for name in built.compiled} == {"scale_kernel"}
