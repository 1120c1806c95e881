"""Writes compiled kernels as C++: a row for each, images as base64 string literals or as symbols of linked objects."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from kernelpack.descriptors import launcher_text
from kernelpack.pack.format import KernelPack

_CHUNK = 4096
"""Characters of a string literal: C++ compilers are fastest with these, and some refuse more than 64 KB."""


def kernel_row(pack: KernelPack, image: str) -> str:
    """Returns the initialiser of a `kernelpack::Kernel`."""
    figures = pack.metadata
    numbers = [int(figures.get("num_warps", pack.options.num_warps)), int(figures.get("num_ctas", pack.options.num_ctas))]
    numbers += [int(figures.get("shared", 0))]
    program_ns = float(figures.get("program_ns", 0))
    lines = launcher_text(pack.descriptors, pack.parameters).splitlines()
    rest = ",\n     " + "\n     ".join(f'"{line}\\n"' for line in lines) if lines else ""
    if pack.options.launch_pdl or pack.options.launch_cooperative_grid:
        flags = [pack.options.launch_pdl, pack.options.launch_cooperative_grid]
        rest = f"{rest or ', nullptr'}, {', '.join(str(flag).lower() for flag in flags)}"
    return (
        f'    {{"{pack.variant}", "{pack.entry}", "{pack.target}", {image},\n'
        f"     {numbers[0]}, {numbers[1]}, {numbers[2]}, {program_ns!r}{rest}}},"
    )


def object_kernels(namespace: str, backend: str, packs: Sequence[KernelPack]) -> str:
    """Returns the array of kernels whose images are objects, linked into the library.

    Their symbols are declared as data: only so are their addresses constants, which compile fast and need no code at load.
    """
    declarations = "\n".join(f'extern "C" const char {pack.entry}[];' for pack in packs)
    rows = "\n".join(kernel_row(pack, pack.entry) for pack in packs)
    return (
        f"{declarations}\n\nnamespace {namespace}_kernels {{\n\n"
        f"kernelpack::Kernel {backend}[] = {{\n{rows}\n}};\n\n}}  // namespace {namespace}_kernels\n"
    )


def base64_kernels(namespace: str, backend: str, packs: Sequence[KernelPack]) -> str:
    """Returns the array of kernels whose images are loaded when first used."""
    parts = ["namespace {", ""]
    for index, pack in enumerate(packs):
        text = base64.b64encode(pack.image).decode()
        chunks = [f'    "{text[start : start + _CHUNK]}",' for start in range(0, len(text), _CHUNK)]
        parts.append(f"const char* const kChunks{index}[] = {{\n" + "\n".join(chunks) + "\n};")
        parts.append(f"const kernelpack::Base64Image kImage{index} = {{kChunks{index}, {len(chunks)}, {len(pack.image)}}};")
    rows = "\n".join(kernel_row(pack, f"&kImage{index}") for index, pack in enumerate(packs))
    parts += [
        "",
        "}  // namespace",
        "",
        f"namespace {namespace}_kernels {{",
        "",
        f"kernelpack::Kernel {backend}[] = {{",
        rows,
        "};",
    ]
    return "\n".join([*parts, "", f"}}  // namespace {namespace}_kernels", ""])
