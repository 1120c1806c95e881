"""Builds the library by which torch calls the ops of a built library without boxing: `kernelpack unbox`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kernelpack.backends.base import CSRC
from kernelpack.errors import BuildError
from kernelpack.files import generated
from kernelpack.opgen.emit.cpp_library import fill
from kernelpack.opgen.emit.print_cpp import quoted
from kernelpack.opgen.load import library_file, namespace_of
from kernelpack.opgen.stated.schema import Argument, Schema, parse_schema
from kernelpack.pack.ninja import NinjaFile, one_at_a_time, run_ninja, torch_dir, version_script
from kernelpack.ship.manifest import add_file
from kernelpack.version import VERSION

_SYMBOL = re.findall(r'kUnboxingSymbol = "(\w+)"', (CSRC / "ops" / "boxed.h").read_text())[0]
_TYPES = {
    "Tensor": "at::Tensor",
    "int": "int64_t",
    "SymInt": "c10::SymInt",
    "float": "double",
    "bool": "bool",
    "ScalarType": "at::ScalarType",
    "Device": "at::Device",
}
"""What torch's C++ calls the types of schemas."""


@dataclass(frozen=True)
class UnboxedLibrary:
    """A library that was built: `path` lies beside the op library, `torch` is the release that uses it, such as 2.13.0."""

    path: Path
    torch: str
    schemas: tuple[str, ...]
    seconds: float


def unbox(library: Path | str) -> UnboxedLibrary:
    """Builds, for the torch that is installed here, the library by which its dispatcher calls the ops of an op library without
    boxing their arguments. The op library finds it beside itself when it is loaded by the same release of torch; any other
    release calls it through the stable ABI.

    `library` is `libNAME_ops.so`, or the folder that holds it. Raises BuildError.
    """
    started = time.monotonic()
    file = library_file(Path(library).resolve())
    namespace = namespace_of(file)
    torch, schemas = _loaded(file, namespace)
    output = file.with_name(f"{file.stem}.torch-{torch}.so")
    generated.check(output)
    folder = file.parent / "build" / "unboxed"
    source, exports = folder / "unboxed.cpp", folder / "unboxed.exports"
    with one_at_a_time(folder.parent):
        generated.write_if_changed(source, source_of(schemas, namespace, torch), shared=False)
        generated.write_if_changed(exports, version_script([_SYMBOL]), shared=False)
        build = NinjaFile([CSRC, torch_dir() / "include"])
        here = f"-ffile-prefix-map={shlex.quote(str(torch_dir()))}=torch"  # in the texts of torch's errors
        unit = build.compile(source, "unboxed", f"-std=c++20 -DNDEBUG {here}")  # as torch's releases are
        build.link(output, [unit], exports, f"-L{torch_dir() / 'lib'} -ltorch_cpu -lc10")
        run_ninja(build, folder, jobs=1)
    add_file(output)
    return UnboxedLibrary(output, torch, schemas, time.monotonic() - started)


def source_of(schemas: tuple[str, ...], namespace: str, torch: str) -> str:
    """Returns the C++ of the library for ops of these schemas."""
    parsed = {text: parse_schema(text.replace(".out(", "(", 1)) for text in schemas}
    rows = [
        f"    kp::unboxed_op<{_signature(schema)}, {_written(schema)}>(\n        {quoted(text)}),"
        for text, schema in parsed.items()
    ]
    return fill("unboxed.cpp.in", version=VERSION, namespace=namespace, torch=torch, symbol=_SYMBOL, ops="\n".join(rows))


_ASK = """
import ctypes, json, sys, torch
schema = ctypes.CDLL(sys.argv[1])[sys.argv[2] + "_schema"]
schema.restype = ctypes.c_char_p
schemas = iter(lambda index=iter(range(2**31)): schema(next(index)), None)
print(json.dumps([torch.__version__, [text.decode() for text in schemas]]))
"""


def _loaded(file: Path, namespace: str) -> tuple[str, tuple[str, ...]]:
    """Loads an op library in a process of its own; returns the release of torch that did, in three numbers, and the schemas."""
    command = [sys.executable, "-P", "-c", _ASK, str(file), namespace]  # -P: no modules of the folder where the user stands
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        said = asked.stderr.strip().rpartition("\n")[2] or f"the process that loads it ends with code {asked.returncode}"
        raise BuildError(f"{file} cannot be asked for its schemas: {said}", cure="build it anew: kernelpack build")
    version, schemas = json.loads(asked.stdout)
    release = re.fullmatch(r"(\d+\.\d+\.\d+)(\+.*)?", version)
    if release is None:
        raise BuildError(
            f"torch {version} is no release: another torch of that number may have other classes",
            cure="install a release of torch; the op library works with this one, too",
        )
    return release[1], tuple(schemas)


def _signature(schema: Schema) -> str:
    """Returns the C++ signature that torch has for ops of a schema."""
    results = [_TYPES[result.type.text] for result in schema.returns]
    result = "void" if not results else results[0] if len(results) == 1 else f"std::tuple<{', '.join(results)}>"
    return f"{result}({', '.join(map(_parameter, schema.arguments))})"


def _written(schema: Schema) -> str:
    """Returns a number that has the bits of the arguments which an op writes to, the first argument's being the lowest."""
    return f"{sum(argument.mutated << index for index, argument in enumerate(schema.arguments)):#x}"


def _parameter(argument: Argument) -> str:
    kind = _TYPES[argument.type.text]
    if argument.type.is_list:
        return "c10::List<bool>" if kind == "bool" else f"at::ArrayRef<{kind}>"
    if argument.type.optional:
        kind = f"std::optional<{kind}>"
        return f"const {kind}&" if argument.is_tensor else kind
    return f"{kind}&" if argument.mutated else f"const {kind}&" if argument.is_tensor else kind
