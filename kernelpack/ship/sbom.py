"""sbom.cdx.json: the bill of materials of a library, in CycloneDX 1.6: what is in it, what made it, under which licences."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelpack.pack.compress import zstd_version
from kernelpack.pack.ninja import compiler, torch_dir
from kernelpack.ship.manifest import sha256

NAME = "sbom.cdx.json"
_GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"
_CUDA = "LicenseRef-NVIDIA-CUDA-Toolkit-EULA"
_ZSTD = "pkg:github/facebook/zstd"
_ASSEMBLERS = {"ptxas": "nvidia-cuda-nvcc", "nvJitLink": "nvidia-nvjitlink"}


@dataclass(frozen=True)
class Component:
    """A part or a tool. `licence` is an SPDX expression, `purl` names where it comes from."""

    name: str
    version: str
    licence: str
    purl: str
    what: str
    kind: str = "library"

    @property
    def record(self) -> dict[str, Any]:
        """It as CycloneDX has it."""
        at = f"@{self.version}" if self.version else ""
        return {
            "type": self.kind,
            "bom-ref": f"{self.kind}:{self.name}{at}",
            "name": self.name,
            **({"version": self.version} if self.version else {}),
            "description": self.what,
            "licenses": [{"expression": self.licence}],
            "purl": f"{self.purl}{at}",
        }


def sbom(library: Path, version: str, tools: Mapping[str, Iterable[str]], *, compressed: bool) -> str:
    """Returns the bill of a library that was linked: `tools` are those that its packs state, `compressed` says whether it holds images
    and what unpacks them. It has no time and no random number in it: the same build writes the same bill."""
    macros = _macros(compressed=compressed)
    parts = [part.record for part in _parts(version, tools, macros)]
    made_by = [tool.record for tool in _tools(version, tools, macros)]
    hashes = [{"alg": "SHA-256", "content": sha256(library)}]
    subject = {"type": "library", "bom-ref": library.name, "name": library.name, "hashes": hashes}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"tools": {"components": made_by}, "component": subject},
        "components": parts,
        "dependencies": [
            {"ref": library.name, "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }
    return json.dumps(bill, indent=1) + "\n"


def _macros(*, compressed: bool) -> dict[str, str]:
    """Returns what the C++ compiler defines, and the headers that a library is built with."""
    include = ["cstddef", *(["zstd.h"] if compressed else [])]
    flags = [flag for name in include for flag in ("-include", name)]
    command = [*compiler(), "-x", "c++", "-E", "-dM", *flags, "/dev/null"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {name: value.strip('"') for name, value in re.findall(r"^#define (\w+) (.*)$", said, re.MULTILINE)}


def _parts(version: str, tools: Mapping[str, Iterable[str]], macros: Mapping[str, str]) -> list[Component]:
    """Returns what a library holds code of, beside its author's."""
    torch = "".join(re.findall(r"__version__ = '([\d.]+)", (torch_dir() / "version.py").read_text())[:1])
    inline = "templates and inline functions of its headers"
    found = [
        Component("kernelpack", version, "Apache-2.0", "pkg:generic/kernelpack", "the C++ that calls and launches kernels"),
        Component("torch", torch, "BSD-3-Clause", "pkg:pypi/torch", inline),
        Component("libstdc++", macros.get("_GLIBCXX_RELEASE", ""), _GCC, "pkg:generic/libstdc%2B%2B", inline),
    ]
    if "ZSTD_VERSION_MAJOR" in macros:
        number = ".".join(macros[f"ZSTD_VERSION_{part}"] for part in ("MAJOR", "MINOR", "RELEASE"))
        found.append(Component("zstd", number, "BSD-3-Clause", _ZSTD, "unpacks images; linked from the static libzstd"))
    if tools.get("assembler"):
        what = "the functions of it that kernels for GPUs call"
        found.append(Component("libdevice", "", _CUDA, "pkg:pypi/nvidia-nvvm", what))
    return found


def _tools(version: str, tools: Mapping[str, Iterable[str]], macros: Mapping[str, str]) -> list[Component]:
    """Returns what made a library."""
    rows = [("kernelpack", version, "Apache-2.0", "pkg:generic/kernelpack", "compiles kernels")]
    for stated in tools.get("llvm", ()):
        versions = dict(re.findall(r"(llvmlite|LLVM) ([\w.]+)", stated))
        rows.append(("llvmlite", versions.get("llvmlite", ""), "BSD-2-Clause", "pkg:pypi/llvmlite", "calls LLVM"))
        licence, purl = "Apache-2.0 WITH LLVM-exception", "pkg:github/llvm/llvm-project"
        rows.append(("LLVM", versions.get("LLVM", ""), licence, purl, "optimises, makes machine code and PTX"))
    for stated in tools.get("assembler", ()):
        name, _, numbers = stated.rpartition(" ")
        rows.append((name, numbers, _CUDA, f"pkg:pypi/{_ASSEMBLERS.get(name, name)}", "assembles PTX"))
    if "ZSTD_VERSION_MAJOR" in macros:
        rows.append(("zstd", zstd_version(), "BSD-3-Clause", _ZSTD, "compresses images"))
    licence = "Apache-2.0 WITH LLVM-exception" if "__clang__" in macros else _GCC
    name, number = (
        ("clang" if "__clang__" in macros else "gcc"),
        "".join(re.findall(r"[\d.]+", macros.get("__VERSION__", ""))[:1]),
    )
    rows.append((name, number, licence, f"pkg:generic/{name}", "compiles and links C++"))
    return [Component(*row, kind="application") for row in rows]
