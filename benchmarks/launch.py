"""What a call costs before its kernel runs: C entry points, ops, kernel[grid], first uses, beside the shortest code by hand."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import OURS
from benchmarks.report import Row, Table, arguments, write_json
from benchmarks.same_source import load_kernels
from kernelpack.backends.base import CSRC
from kernelpack.opgen.build import Built, build
from kernelpack.opgen.emit.c_entries import entry_name
from kernelpack.opgen.unbox import unbox
from kernelpack.pack.format import KernelPack
from kernelpack.pack.ninja import TORCH_TARGET_VERSION, torch_dir

_HERE = Path(__file__).parent
_NAMESPACE = "timed"
_COUNT = 128
"""Elements on a GPU: one program's."""
_FACTOR = 1.0
_KEY_NS = 300.0
_WARM_UP = 3.0
"""Seconds."""
_NUMBERS = (1, 1, 1, 1, 3, 4, 5, 6, 7, 8, 9)

_LOOP = """
def loop(x: torch.Tensor, calls: int) -> torch.Tensor:
    for _ in range(calls):
        x = torch.ops.{namespace}.scale(x, 1.0)
    return x
"""


@dataclass(frozen=True)
class Race:
    """Contenders that are timed in turns: each returns the nanoseconds of one of `calls` calls."""

    case: str
    peer: str
    ours: Callable[[int], float]
    theirs: Callable[[int], float]
    limit: Callable[[float], float] | None
    goal: Callable[[float], float] | None = None


@dataclass
class Libraries:
    """What is built for a run: the op library, and the code by hand."""

    device: str
    built: Built
    peer: ctypes.CDLL
    x: torch.Tensor
    kept: list[Any] = field(default_factory=list)

    def pack(self, kernel: str) -> KernelPack:
        """Returns the variant of a kernel that calls with `x` use."""
        found = [pack for pack in self.built.packs if pack.variant.startswith(kernel)]
        return max(found, key=lambda pack: len(pack.facts))

    def entry(self, library: ctypes.CDLL, pack: KernelPack) -> Any:
        """Returns the C entry point of a kernel."""
        return library[entry_name(_NAMESPACE, pack)]


def prepare(device: str, folder: Path) -> Libraries:
    """Builds everything, and gives the code by hand the kernel that the op launches."""
    built = build([_HERE / "launch_ops.py"], namespace=_NAMESPACE, targets=[f"{device}:native"], out=folder / "library")
    unbox(built.library)
    torch_folder = torch_dir()
    peer, calls = folder / "libpeer.so", folder / "libcalls.so"
    common = ["g++", "-O2", "-fPIC", "-shared", f"-I{torch_folder}/include", f"-L{torch_folder}/lib"]
    stable = ["-std=c++17", f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}", f"-I{CSRC}", str(_HERE / "launch_peer.cpp")]
    classic = ["-std=c++20", f"-I{torch_folder}/include/torch/csrc/api/include", str(_HERE / "launch_calls.cpp")]
    subprocess.run([*common, *stable, "-o", str(peer), "-ltorch_cpu", "-ldl"], check=True)
    subprocess.run([*common, *classic, "-o", str(calls), "-ltorch_cpu", "-lc10"], check=True)
    for library in (built.library, peer, calls):
        torch.ops.load_library(str(library))
    by_hand = ctypes.CDLL(str(peer))
    for name in ("peer_time_raw", "peer_time_allocating", "peer_time_first_use", "peer_time_entry", "peer_time_first_entry"):
        getattr(by_hand, name).restype = ctypes.c_double
    x = torch.randn(1 if device == "cpu" else _COUNT, device=device)
    libraries = Libraries(device, built, by_hand, x)
    pack = libraries.pack("scale_kernel")
    block = ctypes.c_int64(int(pack.constexprs["BLOCK"]))
    if device == "cpu":
        from kernelpack.backends.cpu.device.open import open_object
        from kernelpack.compiled import CompiledKernel
        from kernelpack.runtime.loaded import LoadedKernel

        kernel = CompiledKernel(pack.entry, pack.target, pack.options, pack.parameters, pack.facts, "object", pack.image)
        loaded = LoadedKernel(kernel, open_object(kernel))
        libraries.kept.append(loaded)
        by_hand.peer_use_cpu(ctypes.c_void_p(loaded.address), block)
    else:
        by_hand.peer_open_driver(b"libcuda.so.1")
        threads = ctypes.c_uint(32 * int(pack.metadata["num_warps"]))
        by_hand.peer_use_cuda(ctypes.c_char_p(pack.image), pack.entry.encode(), block, threads)
    own, other = (getattr(torch.ops, name).scale(x, 2.0) for name in (_NAMESPACE, "launch_peer"))
    assert torch.equal(own, other), "the op and the code by hand differ"
    assert torch.equal(own, x * 2)
    return libraries


def typed(libraries: Libraries, namespace: str) -> Callable[[int], float]:
    """Returns what times calls of an op by a typed handle in C++."""
    return lambda calls: torch.ops.launch_calls.typed(libraries.x, _FACTOR, f"{namespace}::scale", calls)


def in_python(call: Callable[[], Any]) -> Callable[[int], float]:
    """Returns what times calls from Python."""

    def nanoseconds(calls: int) -> float:
        turns = range(calls)
        start = time.perf_counter()
        for _ in turns:
            call()
        return (time.perf_counter() - start) / calls * 1e9

    return nanoseconds


def of_op(libraries: Libraries, namespace: str) -> Callable[[int], float]:
    """Returns what times calls of an op from Python."""
    op, x = getattr(torch.ops, namespace).scale, libraries.x

    def nanoseconds(calls: int) -> float:
        turns = range(calls)
        start = time.perf_counter()
        for _ in turns:
            op(x, _FACTOR)
        return (time.perf_counter() - start) / calls * 1e9

    return nanoseconds


def scripted(libraries: Libraries, namespace: str) -> Callable[[int], float]:
    """Returns what times calls in TorchScript. Each takes the last one's result, so that none is left out."""
    unit = torch.jit.CompilationUnit(_LOOP.format(namespace=namespace))

    def nanoseconds(calls: int) -> float:
        start = time.perf_counter()
        unit.loop(libraries.x, calls)
        return (time.perf_counter() - start) / calls * 1e9

    unit.loop(libraries.x, 10)
    return nanoseconds


def jit_calls(compiler: str, device: str) -> dict[int, Callable[[], Any]]:
    """Returns calls of the kernels with 4 and with 16 arguments, each of which has run."""
    kernels = load_kernels(compiler, _HERE / "launch_kernels.py")
    x, y = (torch.randn(2 * _COUNT, device=device) for _ in range(2))
    out = torch.empty(_COUNT, device=device)
    few, many = kernels.arguments_4, kernels.arguments_16
    calls: dict[int, Callable[[], Any]] = {
        4: lambda: few[(1,)](x, out, _COUNT, 2.0, BLOCK=128),
        16: lambda: many[(1,)](x, y, out, _COUNT, *_NUMBERS, 2.0, BLOCK=128),
    }
    calls[16]()
    expected = (x[3 : _COUNT + 3] + y[4 : _COUNT + 4]) * 2 + 1 * 5 + 6 * 7 + 8 * 9
    assert torch.allclose(out, expected, atol=1e-4), compiler
    calls[4]()
    assert torch.equal(out, 2 * x[:_COUNT]), compiler
    return calls


def cpu_races(libraries: Libraries) -> list[Race]:
    peer = "by hand, stable ABI"

    def limit(theirs: float) -> float:
        return 1.05 * theirs

    return [
        Race("CPU op on one element, C++", peer, typed(libraries, _NAMESPACE), typed(libraries, "launch_peer"), limit),
        Race("CPU op on one element, Python", peer, of_op(libraries, _NAMESPACE), of_op(libraries, "launch_peer"), limit),
    ]


def cuda_races(libraries: Libraries) -> list[Race]:
    peer, x = libraries.peer, libraries.x
    out = torch.empty_like(x)
    device, stream = ctypes.c_int32(x.device.index), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
    numbers = ctypes.c_int32(_COUNT), ctypes.c_float(_FACTOR)
    kernels = ctypes.CDLL(str(libraries.built.library))
    libraries.kept += [out, kernels]
    entry = libraries.entry(kernels, libraries.pack("scale_kernel"))

    def raw(calls: int) -> float:
        return peer.peer_time_raw(*pointers, *numbers, stream, ctypes.c_int64(calls))

    def by_entry(calls: int) -> float:
        return peer.peer_time_entry(entry, device, stream, *pointers, *numbers, ctypes.c_int64(calls))

    def allocating(calls: int) -> float:
        return peer.peer_time_allocating(pointers[0], *numbers, device, stream, ctypes.c_int64(calls))

    races = [
        Race("C entry point", "cuLaunchKernel", by_entry, raw, lambda ns: ns + 500, lambda ns: ns + 150),
        Race("op, C++ typed handle", "allocation, launch", typed(libraries, _NAMESPACE), allocating, lambda ns: ns + 400),
        Race("op, C++ typed handle, by hand", "allocation, launch", typed(libraries, "launch_peer"), allocating, None),
        Race("op, C++ typed handle, no checks", "allocation, launch", typed(libraries, "launch_floor"), allocating, None),
        Race("op, TorchScript", "allocation, launch", scripted(libraries, _NAMESPACE), allocating, lambda ns: ns + 500),
        Race("op, TorchScript, by hand", "allocation, launch", scripted(libraries, "launch_peer"), allocating, None),
        Race("op, TorchScript, no checks", "allocation, launch", scripted(libraries, "launch_floor"), allocating, None),
        Race("op, Python", "by hand, stable ABI", of_op(libraries, _NAMESPACE), of_op(libraries, "launch_peer"),
             lambda ns: 1.02 * ns),
    ]  # fmt: skip
    if importlib.util.find_spec("triton") is None:
        print("kernel[grid] is not timed: Triton is not installed")
        return races
    ours, theirs = jit_calls(OURS, "cuda"), jit_calls("triton", "cuda")
    for count in ours:
        races.append(
            Race(f"kernel[grid], {count} arguments", "triton", in_python(ours[count]), in_python(theirs[count]),
                 lambda ns: 0.35 * ns)
        )  # fmt: skip
    return races


def run(races: Sequence[Race], device: str, rounds: int, calls: int, warm_up: float) -> list[tuple[float, float]]:
    """Returns the median nanoseconds of both in each race. A round visits every race, since a host's clock changes within
    seconds, and rounds count once `warm_up` seconds of them are over. On a GPU the queue is empty whenever a turn begins."""
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in races]
    begin = time.perf_counter() + warm_up
    number = 0
    while number < rounds:
        counts = time.perf_counter() >= begin
        for race, spent in zip(races, times, strict=True):
            for which in (0, 1) if number % 2 else (1, 0):
                nanoseconds = (race.ours, race.theirs)[which](calls)
                if device == "cuda":
                    torch.cuda.synchronize()
                if counts:
                    spent[which].append(nanoseconds)
        number += counts
    return [(statistics.median(ours), statistics.median(theirs)) for ours, theirs in times]


def first_uses(libraries: Libraries) -> tuple[float, float]:
    """Returns the median nanoseconds from nothing to the first launch, of kernels that nobody used, and of the same images."""
    peer, x = libraries.peer, libraries.x
    out = torch.empty_like(x)
    device, stream = ctypes.c_int32(x.device.index), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    values = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_int32(_COUNT), ctypes.c_float(_FACTOR)
    kernels = ctypes.CDLL(str(libraries.built.library))
    times: tuple[list[float], list[float]] = ([], [])
    for number, pack in enumerate(pack for pack in libraries.built.packs if pack.variant.startswith("step_kernel")):
        for which in (0, 1) if number % 2 else (1, 0):
            torch.cuda.synchronize()
            if which == 0:
                spent = peer.peer_time_first_entry(libraries.entry(kernels, pack), device, stream, *values)
            else:
                spent = peer.peer_time_first_use(ctypes.c_char_p(pack.image), pack.entry.encode(), *values, stream)
            times[which].append(spent)
        torch.cuda.synchronize()
    return statistics.median(times[0]), statistics.median(times[1])


def key_race(device: str) -> Race:
    """Returns what times binding a call's 16 arguments and making its key: theirs with three tensors, which torch's DLPack
    function reads, ours with numbers in their place."""
    native = load_kernels(OURS, _HERE / "launch_kernels.py").arguments_16._launcher.native
    tensors = [torch.empty(_COUNT, device=device) for _ in range(3)]

    def nanoseconds(first: Sequence[Any]) -> Callable[[int], float]:
        return lambda calls: native.time_key(calls, *first, _COUNT, *_NUMBERS, 2.0, BLOCK=128)

    return Race("specialization key, no tensors", "with three tensors", nanoseconds(_NUMBERS[:3]), nanoseconds(tensors), None)


def main(argv: Sequence[str] | None = None) -> None:
    parser: argparse.ArgumentParser = arguments("benchmarks.launch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=301, metavar="N", help="how often everybody is timed (default: 301)")
    asked = parser.parse_args(argv)
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; to fix: run on a machine with a GPU, or with --device cpu")
    torch.set_num_threads(1)
    rounds, calls = (3, 50) if asked.quick else (asked.rounds, 200)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(torch.inference_mode())  # as servers call
        libraries = prepare(asked.device, folder)
        races = [*(cpu_races if asked.device == "cpu" else cuda_races)(libraries), key_race(asked.device)]
        table = Table([race.case for race in races])
        times = run(races, asked.device, rounds, calls, 0 if asked.quick else _WARM_UP)
        for race, (ours, theirs) in zip(races, times, strict=True):
            table.add(
                Row(race.case, "ns", ours, race.peer, theirs, limit=race.limit(theirs) if race.limit is not None else None)
            )
            if race.goal is not None:
                table.add(Row(f"{race.case} (goal)", "ns", ours, race.peer, theirs, limit=race.goal(theirs)))
        _, key = times[-1]
        table.add(Row("specialization key, 16 arguments", "ns", key, "limit", _KEY_NS, limit=_KEY_NS))
        if asked.device == "cuda":
            ours, theirs = first_uses(libraries)
            table.add(Row("first use of a kernel", "ns", ours, "cuModuleLoadData", theirs, limit=1.5 * theirs))
        table.summarise()
        if asked.json is not None:
            write_json(asked.json, asked.device, table.rows)


if __name__ == "__main__":
    main()
