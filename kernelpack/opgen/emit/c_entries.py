"""Writes the C interface of a library: one function for each compiled kernel, and the header that declares them."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable

from kernelpack.backends.base import Backend, LauncherSource
from kernelpack.compiled import Parameter
from kernelpack.opgen.emit.cpp_library import fill
from kernelpack.opgen.emit.library import LibraryPlan
from kernelpack.opgen.emit.print_cpp import quoted
from kernelpack.pack.format import KernelPack

_TYPES = {"i1": "bool", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "f32": "float", "f64": "double"}
_TYPES |= {"f16": "uint16_t", "bf16": "uint16_t"}  # C has no type for them: their bits
_WHERE = "int device, void* stream, int64_t grid_x, int64_t grid_y, int64_t grid_z"
_TAKEN = (
    " device stream grid_x grid_y grid_z params auto bool break case catch char class const continue default delete do double else "
    "enum explicit extern float for friend goto if inline int long mutable namespace new operator private protected public register "
    "restrict return short signed sizeof static struct switch template this throw try typedef typename union unsigned using virtual "
    "void volatile while "
)


def c_files(library: LibraryPlan) -> dict[str, str]:
    """Returns `<namespace>_kernels.h` and `kernels_c.cpp`, by file name."""
    declarations, entries, targets, backends = [], [], [], []
    for backend, launcher in zip(library.backends, library.launchers, strict=True):
        packs = library.packs_of(backend)
        names = ", ".join(quoted(str(target)) for target in library.targets[backend.name])
        count = len(library.targets[backend.name])
        targets.append(f"const char* const k{backend.name}Targets[] = {{{names}}};")
        array = f"{library.namespace}_kernels::{backend.name}"
        backends.append(f"    {{&{launcher.variable}, {array}, {len(packs)}, k{backend.name}Targets, {count}}},")
        for index, pack in enumerate(packs):
            declarations.append(_declaration(library.namespace, pack, backend))
            entries.append(_entry(library.namespace, pack, backend, launcher, f"{array}[{index}]"))
    values = {"version": library.version, "namespace": library.namespace, "build_command": library.build_command}
    return {
        f"{library.namespace}_kernels.h": fill("kernels_c.h.in", **values, declarations="\n\n".join(declarations)),
        "kernels_c.cpp": fill(
            "kernels_c.cpp.in",
            **values,
            targets="\n".join(targets),
            backends="\n".join(backends),
            entries="\n\n".join(entries),
        ),
    }


def entry_name(namespace: str, pack: KernelPack) -> str:
    """Returns the C function that launches a kernel: `my_launch_scale_kernel_f32_any_cpu_x86_64_v3`."""
    return f"{namespace}_launch_{pack.entry.removeprefix(f'{namespace}_')}"


def _declaration(namespace: str, pack: KernelPack, backend: Backend) -> str:
    name = entry_name(namespace, pack)
    integers = {key: text for key, text in pack.constexprs.items() if text.lstrip("-").isdigit()}
    others = [f"{key} = {text}" for key, text in pack.constexprs.items() if key not in integers]
    lines = [f"// {pack.variant} for {pack.target}{', ' if others else ''}{', '.join(others)}"]
    guards = _guards(pack, backend, c_name)
    if guards:
        lines.append(f"// Refuses calls unless {', '.join(guards)}.")
    reaches = {prop.name for prop in backend.properties() if prop.test.of_reach}
    promised = [f"{fact.parameter} ({fact.property} = {fact.value})" for fact in pack.facts if fact.property in reaches]
    if promised:
        lines.append(f"// Relies, unchecked, on how far these reach: {', '.join(promised)}.")
    if integers:
        stem = name.replace(f"{namespace}_launch_", f"{namespace}_", 1)
        lines.append(f"enum {{ {', '.join(f'{stem}_{key} = {text}' for key, text in integers.items())} }};")
    return "\n".join([*lines, f"{_signature(name, pack, elements=True)};"])


def _entry(namespace: str, pack: KernelPack, backend: Backend, launcher: LauncherSource, row: str) -> str:
    lines = [f"EXPORT {_signature(entry_name(namespace, pack), pack)} {{"]
    guards = [
        f"!({condition}) ? {quoted(said)} : "
        for condition, said in zip(_guards(pack, backend, _guarded), _guards(pack, backend, c_name), strict=True)
    ]
    if guards:
        lines.append(f"  if (const char* wrong = {''.join(guards)}nullptr) return refuse({row}, wrong);")
    values = ", ".join(f"&{c_name(parameter)}" for parameter in pack.parameters)
    lines.append(f"  void* params[] = {{{values}}};" if values else "  void** params = nullptr;")
    lines.append(f"  return launch({launcher.variable}, {row}, device, stream, {{grid_x, grid_y, grid_z}}, params);")
    return "\n".join([*lines, "}"])


def _guards(pack: KernelPack, backend: Backend, argument: Callable[[Parameter], str]) -> list[str]:
    """Returns the C conditions of what the kernel's code assumes; `argument` writes a parameter."""
    parameters = {parameter.name: parameter for parameter in pack.parameters}
    tests = {name: test for name, test in backend.tests().items() if not test.of_reach}  # only a tensor knows its reach
    return [
        tests[fact.property].condition(argument(parameters[fact.parameter]), fact.value)
        for fact in pack.facts
        if fact.parameter in parameters and fact.property in tests  # others are constants
    ]


def _guarded(parameter: Parameter) -> str:
    name = c_name(parameter)
    return f"address({name})" if c_type(parameter) == "void*" else name


def _signature(name: str, pack: KernelPack, elements: bool = False) -> str:
    """Returns a function's head; with `elements`, it says what pointers point to."""
    return f"int {name}(\n    {_parameter_list(pack.parameters, elements)})"


@functools.cache  # kernels differ in their constexprs far more often than in their parameters
def _parameter_list(parameters: tuple[Parameter, ...], elements: bool) -> str:
    own = []
    for parameter in parameters:
        element = f" /*{parameter.type[8:-1]}*/" if elements and c_type(parameter) == "void*" else ""
        own.append(f"{c_type(parameter)} {c_name(parameter)}{element}")
    rows = textwrap.wrap(", ".join(text.replace(" ", "~") for text in own), 120)  # breaks between parameters alone
    return ",\n    ".join([_WHERE, *(row.replace("~", " ").rstrip(",") for row in rows)])


def c_type(parameter: Parameter) -> str:
    """Returns a run-time parameter's type in C."""
    return "void*" if parameter.type.startswith("!tt.ptr") else _TYPES[parameter.type]


def c_name(parameter: Parameter) -> str:
    """Returns a run-time parameter's name in C, where some names mean something else, and none has a dot."""
    return f"{parameter.name}_" if f" {parameter.name} " in _TAKEN else parameter.name.replace(".", "_storage_")
