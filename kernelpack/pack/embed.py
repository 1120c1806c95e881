"""Writes compiled kernels as C++: a row for each, and images compressed or as symbols of linked objects."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

from kernelpack.descriptors import launcher_text
from kernelpack.pack.compress import compress, zstd_version
from kernelpack.pack.elf import linked_for
from kernelpack.pack.format import KernelPack

_FORM = 2
"""Of the C++ that holds images. A file of another form is not taken over from an earlier build."""


def kernel_row(pack: KernelPack, image: str, *, linked: bool = False) -> str:
    """Returns the initialiser of a `kernelpack::Kernel`; `linked`: its image is its code, and nobody asks for the symbol."""
    figures = pack.metadata
    numbers = [int(figures.get("num_warps", pack.options.num_warps)), int(figures.get("num_ctas", pack.options.num_ctas))]
    numbers += [int(figures.get("shared", 0))]
    program_ns = float(figures.get("program_ns", 0))
    lines = launcher_text(pack.descriptors, pack.parameters).splitlines()
    rest = ",\n     " + "\n     ".join(f'"{line}\\n"' for line in lines) if lines else ""
    flags = [pack.options.launch_pdl, bool(figures.get("launch_cooperative_grid", pack.options.launch_cooperative_grid))]
    if any(flags):
        rest = f"{rest or ', nullptr'}, {', '.join(str(flag).lower() for flag in flags)}"
    symbol = "nullptr" if linked else f'"{pack.symbol}"'
    return (
        f'    {{"{pack.variant}", {symbol}, "{pack.target}", {image},\n'
        f"     {numbers[0]}, {numbers[1]}, {numbers[2]}, {program_ns!r}{rest}}},"
    )


def object_kernels(namespace: str, backend: str, packs: Sequence[KernelPack]) -> str:
    """Returns the array of kernels whose images are objects, linked into the library.

    Their symbols are declared as data: only so are their addresses constants, which compile fast and need no code at load.
    """
    linked = {entry: pack.symbol for entry, pack in linked_for(packs).items()}
    declarations = "\n".join(f'extern "C" const char {symbol}[];' for symbol in dict.fromkeys(linked.values()))
    rows = "\n".join(kernel_row(pack, linked[pack.entry], linked=True) for pack in packs)
    return (
        f"{declarations}\n\nnamespace {namespace}_kernels {{\n\n"
        f"kernelpack::Kernel {backend}[] = {{\n{rows}\n}};\n\n}}  // namespace {namespace}_kernels\n"
    )


def image_kernels(namespace: str, backend: str, packs: Sequence[KernelPack]) -> str:
    """Returns the array of kernels whose images are loaded when first used: those of `images_source`, in the same order."""
    rows = "\n".join(kernel_row(pack, f"&{backend}_images[{index}]") for index, pack in enumerate(packs))
    return (
        f"namespace {namespace}_kernels {{\n\nextern kernelpack::Image {backend}_images[{len(packs)}];\n\n"
        f"kernelpack::Kernel {backend}[] = {{\n{rows}\n}};\n\n}}  // namespace {namespace}_kernels\n"
    )


def images_digest(images: Sequence[bytes]) -> str:
    """Returns what tells the images of two libraries apart."""
    digest = hashlib.sha256(f"{_FORM} {zstd_version()} {len(images)}".encode())
    for image in images:
        digest.update(hashlib.sha256(image).digest())
    return digest.hexdigest()


def images_source(namespace: str, backend: str, images: Sequence[bytes], launcher: str) -> str:
    """Returns the images of a library, compressed; `launcher` is the C++ variable of what launches them."""
    frames = compress(images)
    data = b"".join(frame.data for frame in frames)
    symbol = f"{namespace}_{backend}_images"
    parts = [
        '#include "kernels.h"\n#include "kernels/zstd_image.h"',
        "",
        data_source(symbol, data),
        f'extern "C" const unsigned char {symbol}[{len(data)}];',
        "",
        f"namespace {namespace}_kernels {{",
        "",
        f"extern kernelpack::Image {backend}_images[{len(images)}];",
        f"kernelpack::Image {backend}_images[] = {{",
    ]
    start = 0
    for frame in frames:
        like = "nullptr" if frame.like is None else f"&{backend}_images[{frame.like}]"
        parts.append(f"    {{{symbol} + {start}, {len(frame.data)}, {frame.size}, kernelpack::unpack_zstd, {like}}},")
        start += len(frame.data)
    ahead = f"static const bool ahead = kernelpack::unpack_ahead({launcher}, {backend}_images, {len(frames)});"
    return "\n".join([*parts, "};", ahead, "", f"}}  // namespace {namespace}_kernels", ""])


def data_source(symbol: str, data: bytes) -> str:
    """Returns an assembler statement that defines a hidden symbol as read-only data: what compilers take in fastest."""
    lines = [f'asm(R"(\n  .section .rodata,"a",@progbits\n  .balign 16\n  .hidden {symbol}\n  .globl {symbol}\n{symbol}:']
    return "\n".join([*lines, *words_of(data), '  .text\n)");'])


def words_of(data: bytes) -> list[str]:
    """Returns the assembler lines of data: six words a line, and what remains as bytes."""
    whole = len(data) // 8 * 8
    words = [f"{word:#x}" for (word,) in struct.iter_unpack("<Q", data[:whole])]
    lines = [f"  .quad {','.join(words[start : start + 6])}" for start in range(0, len(words), 6)]
    return lines + ([f"  .byte {','.join(map(hex, data[whole:]))}"] if data[whole:] else [])
