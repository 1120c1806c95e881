"""Writes a compiled object as C++: its sections as data of assembler statements, with the relocations that the linker resolves."""

from __future__ import annotations

from kernelpack.errors import PackError
from kernelpack.pack.elf import UNDEFINED, ElfFile, read_object
from kernelpack.pack.embed import words_of
from kernelpack.pack.format import KernelPack

# numbers of the ELF specification, and of the processor supplements that name relocations
_WRITE, _EXEC = 1, 4
_RELOCATIONS = {
    62: {
        1: "R_X86_64_64", 2: "R_X86_64_PC32", 4: "R_X86_64_PLT32", 9: "R_X86_64_GOTPCREL", 10: "R_X86_64_32", 11: "R_X86_64_32S",
        24: "R_X86_64_PC64", 41: "R_X86_64_GOTPCRELX", 42: "R_X86_64_REX_GOTPCRELX",
    },
    183: {
        257: "R_AARCH64_ABS64", 260: "R_AARCH64_PREL64", 261: "R_AARCH64_PREL32", 275: "R_AARCH64_ADR_PREL_PG_HI21",
        277: "R_AARCH64_ADD_ABS_LO12_NC", 278: "R_AARCH64_LDST8_ABS_LO12_NC", 282: "R_AARCH64_JUMP26", 283: "R_AARCH64_CALL26",
        284: "R_AARCH64_LDST16_ABS_LO12_NC", 285: "R_AARCH64_LDST32_ABS_LO12_NC", 286: "R_AARCH64_LDST64_ABS_LO12_NC",
        299: "R_AARCH64_LDST128_ABS_LO12_NC", 311: "R_AARCH64_ADR_GOT_PAGE", 312: "R_AARCH64_LD64_GOT_LO12_NC",
    },
}  # fmt: skip
"""By machine, then number."""


def object_source(pack: KernelPack) -> str:
    """Returns the assembler statement that holds a kernel's code: linked, it is what the object is.

    Raises PackError for an object that is no 64-bit little-endian ELF file or needs a relocation that the assembler has no name for.
    """
    made = read_object(pack)
    lines = [f"// {pack.variant} for {pack.target}", 'asm(R"(']
    for index, section in enumerate(made.sections):
        if not section.is_loaded:
            continue
        flags = "a" + "w" * bool(section.flags & _WRITE) + "x" * bool(section.flags & _EXEC)
        lines.append(f'  .section {section.name.split(".cst")[0]},"{flags}",@progbits')
        lines.append(f"  .balign {section.alignment}")
        lines.append(f"{_label(pack, index)}:")
        for symbol in made.symbols:
            if symbol.name == pack.symbol and symbol.section == index:
                lines += [f"  .globl {symbol.name}", f"  .hidden {symbol.name}", f"  .type {symbol.name}, @function"]
                lines.append(f"  .set {symbol.name}, {_label(pack, index)} + {symbol.value}")
        lines += words_of(section.data)
        lines += _relocations(pack, made, index)
    return "\n".join([*lines, "  .text", ')");', ""])


def _label(pack: KernelPack, section: int) -> str:
    return f".L{pack.entry}_{section}"


def _relocations(pack: KernelPack, made: ElfFile, index: int) -> list[str]:
    lines = []
    for one in made.relocations(index):
        kind = _RELOCATIONS.get(made.machine, {}).get(one.kind)
        if kind is None:
            raise PackError(f"{pack.file_name}: its object has a relocation of type {one.kind}, which has no form as source")
        symbol = one.symbol
        target = symbol.name if symbol.section == UNDEFINED else f"{_label(pack, symbol.section)} + {symbol.value}"
        lines.append(f"  .reloc {_label(pack, index)} + {one.offset}, {kind}, {target} + {one.addend}")
    return lines
