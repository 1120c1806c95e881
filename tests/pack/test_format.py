"""A pack's text and what it says agree; a pack or lock file that a build did not write is refused with file and line."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelpack.compiled import Parameter
from kernelpack.errors import PackError
from kernelpack.facts import Fact
from kernelpack.options import Options
from kernelpack.pack.embed import kernel_row
from kernelpack.pack.format import KernelPack, parse_pack, read_pack
from kernelpack.pack.lock import differences, lock_text, parse_lock, read_lock
from kernelpack.target import Target

PACK = KernelPack(
    ops=("scale", "scale_"),
    variant="scale_kernel-f32.aligned",
    target=Target.parse("cuda:sm_90a"),
    image_kind="cubin",
    entry="my_scale_kernel",
    parameters=(Parameter("x", "!tt.ptr<f32>"), Parameter("n", "i32")),
    constexprs={"BLOCK": "1024", "bias": "None"},
    options=Options(num_warps=8, maxnreg=128),
    facts=(Fact("n", "tt.divisibility", 16), Fact("x", "tt.divisibility", 16)),
    metadata={"registers": 32, "program_ns": 12.5},
    tools={"llvm": "22.1", "assembler": "ptxas 13.5"},
    image=bytes(range(200)),
    code_sha256="ab" * 32,
    descriptors=("f32; base: x; sizes: n; strides: ; box: 64; swizzle: 0; padding: zero",),
)


def test_text_and_pack_are_inverse() -> None:
    text = str(PACK)
    assert parse_pack(text) == PACK
    assert text.splitlines()[:9] == [
        "kernelpack kernel pack, version 1",
        "op: scale, scale_",
        "variant: scale_kernel-f32.aligned",
        "target: cuda:sm_90a",
        "image kind: cubin",
        "entry: my_scale_kernel",
        "parameter: x !tt.ptr<f32>",
        "parameter: n i32",
        "constexpr: BLOCK = 1024",
    ]
    assert f"image sha256: {PACK.sha256}" in text.splitlines()


def test_a_pack_may_hold_the_code_of_another() -> None:
    shared = replace(PACK, code_of="my_other_kernel")
    assert (PACK.symbol, shared.symbol) == ("my_scale_kernel", "my_other_kernel")
    assert parse_pack(str(shared)) == shared
    assert str(shared).splitlines()[6] == "code of: my_other_kernel"


@pytest.mark.parametrize("byte", ["0", "A", ":", " ", "\n", "é"])
def test_every_altered_byte_is_refused_with_file_and_line(byte: str) -> None:
    text = str(PACK)
    lines = text.count("\n")
    for position, old in enumerate(text):
        if old == byte:
            continue
        with pytest.raises(PackError) as raised:
            parse_pack(text[:position] + byte + text[position + 1 :], "a.kpack")
        found = re.match(r"a\.kpack:(\d+): ", raised.value.message)
        assert found is not None
        assert 1 <= int(found[1]) <= lines + 1
        assert "build it again" in str(raised.value)


def test_every_truncation_is_refused() -> None:
    text = str(PACK)
    for length in range(len(text)):
        with pytest.raises(PackError, match=r"^a\.kpack:\d+: "):
            parse_pack(text[:length], "a.kpack")
    with pytest.raises(PackError, match="one form"):
        parse_pack(text + "\n", "a.kpack")


def test_a_line_that_was_altered_is_named() -> None:
    lines = str(PACK).split("\n")
    for number, (old, new, message) in {
        1: ("version 1", "version 2", "the pack has version 2, this kernelpack reads version 1"),
        4: ("cuda:", "cuda", "does not have the form"),
        9: (" = ", " ", "expected name = value"),
    }.items():
        altered = [line.replace(old, new) if index + 1 == number else line for index, line in enumerate(lines)]
        with pytest.raises(PackError, match=rf"a\.kpack:{number}: .*{message}"):
            parse_pack("\n".join(altered), "a.kpack")


def test_files_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "a.kpack"
    data = bytearray(str(PACK).encode())
    data[data.index(b"entry")] = 0xFF
    file.write_bytes(data)
    with pytest.raises(PackError, match=r"a\.kpack:6: the pack is not text"):
        read_pack(file)
    file.write_bytes(b"\xff")
    with pytest.raises(PackError, match=r"not text"):
        read_lock(file)


def hashed(text: str) -> str:
    """Returns a pack's text with the hash of its header."""
    head, _, rest = text.partition("\nheader sha256: ")
    digest = hashlib.sha256(head.partition("\n")[2].encode()).hexdigest()
    return f"{head}\nheader sha256: {digest}\n{rest.partition(chr(10))[2]}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("registers = 32", "registers = nan", "expected a number of 64 bits, found 'nan'"),
        ("registers = 32", "registers = inf", "expected a number of 64 bits"),
        ("registers = 32", f"registers = {2**63}", "expected a number of 64 bits"),
        ("divisibility=16", f"divisibility={'1' * 5000}", "expected a number of 64 bits, found '1111"),
        ("num_warps = 8", "num_warps = None", "option num_warps: expected a whole number of 64 bits, found null"),
        ("num_warps = 8", "num_warps = 8.5", "option num_warps: expected a whole number of 64 bits, found 8.5"),
        ("debug = False", "debug = None", "option debug: expected a whole number of 64 bits or true or false, found null"),
        ("num_warps = 8", "warps = 8", 'option "warps": there is no such name; known are num_warps'),
        ("sizes: n", "sizes: rows", "a descriptor is computed from 'rows', which is no parameter of the kernel"),
    ],
)
def test_what_no_build_writes_is_refused_though_its_hash_fits(old: str, new: str, message: str) -> None:
    assert parse_pack(hashed(str(PACK))) == PACK
    assert old in str(PACK)
    with pytest.raises(PackError, match=message):
        parse_pack(hashed(str(PACK).replace(old, new)))


def test_lock_holds_a_line_a_variant() -> None:
    text = lock_text([PACK])
    lock = parse_lock(text)
    assert lock.tools == PACK.tools
    locked = lock.hashes
    assert list(locked) == [("cuda:sm_90a", "scale_kernel-f32.aligned")]
    assert differences(locked, locked) == []
    assert differences(locked, {}) == [
        "scale_kernel-f32.aligned for cuda:sm_90a is in the lock file, but the sources do not make it"
    ]
    assert differences({}, locked) == ["scale_kernel-f32.aligned for cuda:sm_90a is not in the lock file"]


def test_lock_lines_that_no_build_writes_are_refused_with_their_number() -> None:
    first, assembler, _, line = lock_text([PACK]).splitlines()
    for text, number in (
        (f"{line}\n", 1),
        (f"{first}\n{line}", 1),
        (f"{first}\n{line}\n{line}\n", 3),
        (f"{first}\n{line[:-1]}\n", 2),
        (f"{first}\n{line[:-1]}G\n", 2),
        (f"{first}\n{line} x\n", 2),
        (f"{first}\n\n{line}\n", 2),
        (f"{first}\n{assembler}\n{assembler}\n{line}\n", 3),
        (f"{first}\n{line}\n{assembler}\n", 3),
        (f"{first}\n# assembler\n{line}\n", 2),
    ):
        with pytest.raises(PackError, match=rf"ops\.lock:{number}: "):
            parse_lock(text)


def test_other_tools_are_one_error_and_not_as_many_as_there_are_kernels() -> None:
    lock = parse_lock(lock_text([PACK]))
    lock.check_tools(PACK.tools, "ops.lock")
    lock.check_tools({"of another backend": "1.0"}, "ops.lock")
    with pytest.raises(PackError) as raised:
        lock.check_tools({"llvm": "20.1", "assembler": "ptxas 13.5"}, "ops.lock")
    assert (
        raised.value.message == "ops.lock is for llvm = 22.1; here is llvm = 20.1, which makes other code of the same sources"
    )
    assert raised.value.cure is not None
    assert "install what the lock file states" in raised.value.cure


def test_rows_of_libraries_hold_the_tensor_maps_by_parameter_number() -> None:
    assert kernel_row(PACK, "&image").endswith(
        '8, 1, 0, 12.5,\n     "pi\\n"\n     "f32; base: $0; sizes: $1; strides: ; box: 64; swizzle: 0; padding: zero\\n"},'
    )
    assert kernel_row(replace(PACK, descriptors=()), "&image").endswith("8, 1, 0, 12.5},")


def test_a_kernel_of_a_library_says_how_it_is_launched() -> None:
    early = replace(PACK, options=Options(num_warps=8, launch_pdl=True))
    assert parse_pack(str(early)).options.launch_pdl
    assert kernel_row(early, "image").endswith(", true, false},")
    assert "nullptr, true, false}" in kernel_row(replace(early, descriptors=()), "image")
    checked = replace(PACK, options=Options(debug=True, sanitize_overflow=False, enable_reflect_ftz=False))
    assert parse_pack(str(checked)).options == checked.options
    together = replace(PACK, options=Options(num_warps=8, launch_cooperative_grid=True))
    assert parse_pack(str(together)).options.launch_cooperative_grid
    assert kernel_row(together, "image").endswith(", false, true},")
    waiting = replace(PACK, metadata={**PACK.metadata, "launch_cooperative_grid": True})  # as the CPU backend found it
    assert kernel_row(waiting, "image").endswith(", false, true},")
    assert "true" not in kernel_row(PACK, "image")
