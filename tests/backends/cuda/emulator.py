"""Runs the LLVM IR of a kernel on the host: special instructions become calls into emulator.c, threads become coroutines.

This tests numbers, barriers and layouts of kernels without a GPU. The same grid runs with several orders of threads, and with
asynchronous copies done early and late: a missing barrier or wait changes the result or fails.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

_HERE = Path(__file__).parent
_FOLDER = tempfile.TemporaryDirectory(prefix="emulator-")
GUARD = 256
"""Bytes before and behind every array that the kernel must leave alone."""


@functools.cache
def _machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=1, reloc="pic", codemodel="default")


@functools.cache
def _runtime() -> Path:
    output = Path(_FOLDER.name) / "emulator.o"
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", str(_HERE / "emulator.c"), "-o", str(output)], check=True)
    return output


def _slot(kind: str) -> str:
    return {"float": "i32", "double": "i64", "half": "i16", "bfloat": "i16", "<2 x half>": "i32"}.get(kind, kind)


class _Wrappers:
    """LLVM functions that hand an instruction's operands to C as an array of 64-bit slots, and its results back."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}
        self.targets: set[str] = set()

    def make(self, target: str, result: str, arguments: Sequence[str], constants: Sequence[int] = ()) -> str:
        name = f"wrap_{target}_{abs(hash((result, tuple(arguments), tuple(constants)))) % 10**8}"
        results = [] if result == "void" else result.strip("{}").split(", ") if result.startswith("{") else [result]
        lines = [
            f"define internal {result} @{name}({', '.join(f'{kind} %a{i}' for i, kind in enumerate(arguments))}) noinline {{"
        ]
        lines += ["  %in = alloca [16 x i64]", "  %out = alloca [16 x i64]"]
        for i, kind in enumerate(arguments):
            value, slot = f"%a{i}", _slot(kind)
            if kind == "ptr":
                lines.append(f"  %p{i} = ptrtoint ptr {value} to i64")
                value, slot = f"%p{i}", "i64"
            elif slot != kind:
                lines.append(f"  %b{i} = bitcast {kind} {value} to {slot}")
                value = f"%b{i}"
            if slot != "i64":
                lines.append(f"  %z{i} = zext {slot} {value} to i64")
                value = f"%z{i}"
            lines += [f"  %q{i} = getelementptr i64, ptr %in, i64 {i}", f"  store i64 {value}, ptr %q{i}"]
        for i, constant in enumerate(constants, len(arguments)):
            lines += [f"  %q{i} = getelementptr i64, ptr %in, i64 {i}", f"  store i64 {constant}, ptr %q{i}"]
        lines.append(f"  call void @{target}(ptr %in, ptr %out)")
        aggregate = "poison"
        for i, kind in enumerate(results):
            slot = _slot(kind)
            lines += [f"  %r{i} = getelementptr i64, ptr %out, i64 {i}", f"  %l{i} = load i64, ptr %r{i}"]
            value = f"%l{i}"
            if slot != "i64":
                lines.append(f"  %t{i} = trunc i64 {value} to {slot}")
                value = f"%t{i}"
            if slot != kind:
                lines.append(f"  %c{i} = bitcast {slot} {value} to {kind}")
                value = f"%c{i}"
            if len(results) > 1:
                lines.append(f"  %g{i} = insertvalue {result} {aggregate}, {kind} {value}, {i}")
                value = aggregate = f"%g{i}"
            aggregate = value
        lines += [f"  ret {result} {aggregate}" if results else "  ret void", "}"]
        self.text[name] = "\n".join(lines)
        self.targets.add(target)
        return name


def _memory_function(text: str, wrappers: _Wrappers, result: str, arguments: Sequence[str]) -> str | None:
    """Translates a predicated load or store into an LLVM function."""
    match = re.fullmatch(r"(?:@\$\d+ )?(ld|st)[.\w:]*?(?:\.v(\d))?\.b(\d+) .*;", text)
    if match is None:
        return None
    kind, count, bits = match[1], int(match[2] or 1), int(match[3])
    name = f"{kind}_{count}_{bits}_{len(arguments)}"
    predicated = arguments[-1] == "i1"
    word = arguments[0] if kind == "ld" else arguments[1]
    memory = f"i{bits}"
    lines = [f"define internal {result} @{name}({', '.join(f'{k} %a{i}' for i, k in enumerate(arguments))}) {{"]
    pointer = f"%a{count if kind == 'ld' else 0}"
    lines.append(f"  br i1 {f'%a{len(arguments) - 1}' if predicated else 'true'}, label %do, label %skip\ndo:")
    for i in range(count):
        lines.append(f"  %p{i} = getelementptr {memory}, ptr {pointer}, i64 {i}")
        if kind == "ld":
            lines.append(f"  %m{i} = load {memory}, ptr %p{i}, align {bits // 8 * count if i == 0 else bits // 8}")
            lines.append(f"  %w{i} = zext {memory} %m{i} to {word}" if word != memory else f"  %w{i} = or {memory} %m{i}, 0")
        else:
            value = f"%a{i + 1}"
            if word != memory:
                lines.append(f"  %m{i} = trunc {word} {value} to {memory}")
                value = f"%m{i}"
            lines.append(f"  store {memory} {value}, ptr %p{i}, align {bits // 8 * count if i == 0 else bits // 8}")
    lines.append("  br label %skip\nskip:")
    if kind == "st":
        lines.append("  ret void\n}")
    else:
        for i in range(count):
            lines.append(f"  %o{i} = phi {word} [ %w{i}, %do ], [ %a{i}, %0 ]")
        aggregate = "%o0"
        if count > 1:
            aggregate = "poison"
            for i in range(count):
                lines.append(f"  %g{i} = insertvalue {result} {aggregate}, {word} %o{i}, {i}")
                aggregate = f"%g{i}"
        lines.append(f"  ret {result} {aggregate}\n}}")
    wrappers.text[name] = "\n".join(lines)
    return name


_CALL = re.compile(r"call (?P<result>void|\{[^}]*\}|[^@{]*?) @llvm\.nvvm\.(?P<name>[\w.]+)\((?P<arguments>.*)\)")
_ASM = re.compile(r'call (?P<result>void|\{[^}]*\}|\w+) asm (?:sideeffect )?"(?P<text>[^"]*)", "[^"]*"\((?P<arguments>.*)\)')
_ARGUMENT = re.compile(r"(<[^>]*>|\{[^}]*\}|[\w]+) ([^,]+)(?:, |$)")


def translate(llir: str) -> str:
    """Returns host LLVM IR for a kernel's LLVM IR: no address spaces, no GPU instructions."""
    wrappers = _Wrappers()

    def arguments_of(text: str) -> list[tuple[str, str]]:
        return [(match[1], match[2]) for match in _ARGUMENT.finditer(text)]

    def call(match: re.Match[str]) -> str:
        arguments = arguments_of(match["arguments"])
        target = "emulate_" + match["name"].replace(".", "_")
        name = wrappers.make(target, match["result"], [kind for kind, _ in arguments])
        return f"call {match['result']} @{name}({match['arguments']})"

    def assembly(match: re.Match[str]) -> str:
        arguments = arguments_of(match["arguments"])
        kinds = [kind for kind, _ in arguments]
        name = _memory_function(match["text"], wrappers, match["result"], kinds)
        if name is None:
            opcode = match["text"].split()[0].replace(".", "_")
            name = wrappers.make(f"emulate_asm_{opcode}", match["result"], kinds)
        return f"call {match['result']} @{name}({match['arguments']})"

    lines = []
    for line in llir.splitlines():
        if line.startswith(("target triple", "declare")) and ("llvm.nvvm" in line or "triple" in line):
            continue
        line = re.sub(r" addrspace\(\d\)", "", line).replace("ptx_kernel ", "")
        line = re.sub(r' syncscope\("\w+"\)', "", line)
        line = _ASM.sub(assembly, _CALL.sub(call, line))
        lines.append(line)
    declared = [f"declare void @{target}(ptr, ptr)" for target in sorted(wrappers.targets)]
    return "\n".join([*lines, *wrappers.text.values(), *declared])


def _entry(llir: str) -> tuple[str, list[str]]:
    match = re.search(r"define ptx_kernel void @([\w$.]+)\((.*)\) \"nvvm", llir)
    assert match is not None
    parameters = [part.split()[0] for part in match[2].split(", ") if part]
    return match[1], parameters


class Kernel:
    """A kernel compiled for the host."""

    def __init__(self, llir: str, threads: int) -> None:
        self.threads = threads
        self.name, self.parameters = _entry(llir)
        # the kernel reads its arguments from a global, so that a coroutine can start it without any
        text = (
            translate(llir) + f"\n@arguments = global [{len(self.parameters)} x i64] zeroinitializer\ndefine void @start() {{\n"
        )
        values = []
        for i, kind in enumerate(self.parameters):
            text += f"  %p{i} = getelementptr i64, ptr @arguments, i64 {i}\n  %v{i} = load {kind}, ptr %p{i}\n"
            values.append(f"{kind} %v{i}")
        text += f"  call void @{self.name}({', '.join(values)})\n  ret void\n}}\n"
        module = llvm.parse_assembly(text)
        module.verify()
        machine = _machine()
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=1)
        options.loop_unrolling = False
        llvm.create_pass_builder(machine, options).getModulePassManager().run(
            module, llvm.create_pass_builder(machine, options)
        )
        folder = Path(tempfile.mkdtemp(dir=_FOLDER.name))
        (folder / "kernel.o").write_bytes(machine.emit_object(module))
        library = folder / "kernel.so"
        subprocess.run(["gcc", "-shared", str(folder / "kernel.o"), str(_runtime()), "-lm", "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.emulator_failure.restype = ctypes.c_char_p

    def __call__(self, grid: Sequence[int], *arguments: object) -> None:
        """Runs the grid with every order of threads. Arrays are changed in place; all orders must change them alike."""
        size = (ctypes.c_int * 3)(*grid, *[1] * (3 - len(grid)))
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        before = [array.copy() for array in arrays]
        first: list[np.ndarray] | None = None
        for order, eager in ((0, False), (1, True), (2, False)):
            guarded = [_Guarded(array) for array in before]
            self._set_arguments(arguments, iter(guarded))
            start = ctypes.cast(self.library.start, ctypes.c_void_p)
            self.library.emulator_run(start, self.threads, size, order, int(eager))
            failure = self.library.emulator_failure()
            assert not failure, failure.decode()
            results = [guard.check() for guard in guarded]
            if first is None:
                first = results
            for one, other in zip(first, results, strict=True):
                same = one.tobytes() == other.tobytes()
                assert same or one.dtype.kind == "f", "results depend on the order of threads: a barrier is missing"
                if not same:  # atomics on floats may add in another order
                    np.testing.assert_allclose(
                        one, other, rtol=1e-5, atol=1e-5, err_msg="results depend on the order of threads"
                    )
        assert first is not None or not arrays
        for array, result in zip(arrays, first or (), strict=True):
            array[...] = result

    def _set_arguments(self, arguments: Sequence[object], guarded) -> None:
        slots = (ctypes.c_uint64 * max(1, len(self.parameters))).in_dll(self.library, "arguments")
        for i, (kind, argument) in enumerate(zip(self.parameters, arguments, strict=True)):
            if isinstance(argument, np.ndarray):
                slots[i] = next(guarded).address
            elif kind in ("float", "double"):
                data = np.array(argument, {"float": np.float32, "double": np.float64}[kind]).tobytes()
                slots[i] = int.from_bytes(data, "little")
            else:
                slots[i] = int(argument) & (1 << 64) - 1


class _Guarded:
    """A copy of an array between two guards, aligned as cudaMalloc aligns."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.raw = np.full(array.nbytes + 2 * GUARD + 256, 0xA5, np.uint8)
        self.start = -self.raw.ctypes.data % 256 + GUARD
        self.address = self.raw.ctypes.data + self.start
        self.raw[self.start : self.start + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)

    def check(self) -> np.ndarray:
        end = self.start + self.array.nbytes
        outside = np.concatenate([self.raw[: self.start], self.raw[end:]])
        assert (outside == 0xA5).all(), "the kernel wrote outside its arrays"
        return self.raw[self.start : end].copy().view(self.array.dtype).reshape(self.array.shape)
