"""GGUF files are read as PyPI's gguf writes them; a file that is cut or changed is read right or refused, and named."""

from __future__ import annotations

import itertools
import re
import struct
from pathlib import Path
from random import Random

import numpy
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

from serving_examples.language_model.tokens import model_file
from tests.serving.language_model.reader import Reader, Refused

Types = GGUFValueType
INTEGERS = {
    Types.UINT8: (0, 255), Types.INT8: (-128, 127), Types.UINT16: (0, 65535), Types.INT16: (-32768, 32767), Types.UINT32: (0, 2**32 - 1),
    Types.INT32: (-(2**31), 2**31 - 1), Types.UINT64: (0, 2**63 - 1), Types.INT64: (-(2**63), 2**63 - 1),
}  # fmt: skip
FORMATS = [
    GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
]  # fmt: skip


def small(path: Path, alignment: int = 32) -> bytes:
    """Returns a file with a field of each kind, and three tensors."""
    writer = GGUFWriter(path, "llama")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    writer.add_uint64("u", 2**40)
    writer.add_float32("f", 0.5)
    writer.add_bool("yes", True)
    writer.add_string("t", "caf\u00e9")
    writer.add_array("texts", ["a", "", "bc"])
    writer.add_array("numbers", [1, -2, 3])
    generator = numpy.random.default_rng(0)
    writer.add_tensor("one", generator.normal(size=5).astype(numpy.float32))
    values = generator.normal(size=(3, 64)).astype(numpy.float32)
    writer.add_tensor("two", quants.quantize(values, GGMLQuantizationType.Q4_1), raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("three", generator.normal(size=(2, 3, 4)).astype(numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def field(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], format: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, format, offset)


def file(*parts: bytes, tensors: int = 0, fields: int = 0, version: int = 3, data: int = 0) -> bytes:
    """Returns a file with these counts in its header; the tensors' data is padded as it has to be."""
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, fields) + b"".join(parts)
    return head + bytes(-len(head) % 32 + data) if data else head


def test_fields_of_every_type(reader: Reader, tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "f.gguf", "llama")
    for kind, values in INTEGERS.items():
        for number, value in enumerate(values):
            writer.add_key_value(f"{kind.name}{number}", value, kind)
        writer.add_key_value(f"{kind.name}s", [*values, 7], Types.ARRAY, kind)
    for name, value in {"f32": 0.1, "f64": 1e300}.items():
        writer.add_key_value(name, value, Types.FLOAT32 if name == "f32" else Types.FLOAT64)
    writer.add_key_value("yes", True, Types.BOOL)
    writer.add_key_value("flags", [True, False, True], Types.ARRAY, Types.BOOL)
    writer.add_key_value("floats", [0.5, 2.5], Types.ARRAY, Types.FLOAT64)
    writer.add_key_value("t", "na\u00efve\0\n", Types.STRING)
    writer.add_key_value("texts", ["", "\U0001f600", "x" * 1000], Types.ARRAY, Types.STRING)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    reader.open(tmp_path / "f.gguf")
    for kind, values in INTEGERS.items():
        for number, value in enumerate(values):
            assert reader.field(f"{kind.name}{number}", "i") == value
            assert reader.field(f"{kind.name}{number}", "n") == float(value)
        assert reader.field(f"{kind.name}s", "I") == [*values, 7]
    assert reader.field("f32", "n") == numpy.float32(0.1)
    assert reader.field("f64", "n") == 1e300
    assert reader.field("flags", "I") == [1, 0, 1]
    assert reader.field("t", "t") == "na\u00efve\0\n"
    assert reader.field("texts", "T") == ["", "\U0001f600", "x" * 1000]
    assert reader.ask("f", b"hyes") == b"1"
    assert reader.ask("f", b"hno") == b"0"


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("i", "f", "field 'f' is not an integer"),
        ("i", "yes", "field 'yes' is not an integer"),
        ("i", "none", "field 'none' is missing"),
        ("i", "\x1b[31m\u00e9" + "x" * 200, "field '?[31m??" + "x" * 93 + "...' is missing"),
        ("n", "t", "field 't' is not a number"),
        ("n", "none", "field 'none' is missing"),
        ("t", "texts", "field 'texts' is not a text"),
        ("T", "numbers", "field 'numbers' is not an array of texts"),
        ("I", "texts", "field 'texts' is not an array of integers"),
        ("I", "u", "field 'u' is not an array of integers"),
    ],
)
def test_fields_of_another_type_or_missing(reader: Reader, kind: str, name: str, expected: str, tmp_path: Path) -> None:
    small(tmp_path / "s.gguf")
    reader.open(tmp_path / "s.gguf")
    with pytest.raises(Refused) as refused:
        reader.field(name, kind)
    assert str(refused.value) == f"{tmp_path / 's.gguf'}: {expected}"


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_tensors_of_every_format(reader: Reader, alignment: int, tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    random = numpy.random.default_rng(1)
    for format in FORMATS:
        _, size = GGML_QUANT_SIZES[format]
        rows = random.integers(0, 256, (2, 3, 5 * size), dtype=numpy.uint8)
        writer.add_tensor(format.name, rows, raw_dtype=format)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reader.open(path)
    assert reader.tensors() == sorted(format.name for format in FORMATS)
    for wanted in GGUFReader(path).tensors:
        format, shape, data = reader.tensor(wanted.name)
        assert format == wanted.tensor_type.value
        assert list(shape) == list(reversed(wanted.shape.tolist()))
        assert data == wanted.data.tobytes()
    with pytest.raises(Refused, match="tensor 'none' is missing"):
        reader.tensor("none")


def test_the_model_file_itself(reader: Reader) -> None:
    reader.open(model_file())
    file = GGUFReader(model_file())
    assert reader.tensors() == sorted(tensor.name for tensor in file.tensors)
    for wanted in file.tensors[::10]:
        format, shape, data = reader.tensor(wanted.name)
        assert (format, list(shape)) == (wanted.tensor_type.value, list(reversed(wanted.shape.tolist())))
        assert data == wanted.data.tobytes()
    assert reader.field("llama.rope.freq_base", "n") == 100000
    assert reader.field("llama.embedding_length", "i") == 576


def test_a_file_cut_at_any_byte_is_refused(reader: Reader, tmp_path: Path) -> None:
    whole = small(tmp_path / "s.gguf")
    reader.open(whole)
    data = reader.tensor("three")[2]
    needed = whole.rindex(data) + len(data)
    for size in range(len(whole)):
        if size >= needed:  # only padding is missing
            reader.open(whole[:size])
            assert reader.tensor("three")[2] == data
            continue
        with pytest.raises(Refused, match=r"^the GGUF file: at byte \d+, in [\w .']+: "):
            reader.open(whole[:size])


def test_a_changed_byte_is_read_or_refused(reader: Reader, tmp_path: Path) -> None:
    whole = small(tmp_path / "s.gguf")
    errors = []
    for at, change in itertools.product(range(len(whole)), (1, 0x80, 0xFF)):
        changed = bytearray(whole)
        changed[at] ^= change
        try:
            reader.open(bytes(changed))
        except Refused as refused:
            errors.append(str(refused))
        else:
            errors += unread(reader)
    assert len(errors) > 300
    assert [
        error for error in errors if not re.match(r"the GGUF file: (at byte \d+, in |tensor '.+' has format \d+, which)", error)
    ] == []


def unread(reader: Reader) -> list[str]:
    """Returns why tensors cannot be read."""
    errors = []
    for name in reader.tensors():
        try:
            reader.tensor(name)
        except Refused as refused:
            errors.append(str(refused))
    return errors


def test_files_of_random_bytes(reader: Reader) -> None:
    random = Random(0)
    for _ in range(300):
        with pytest.raises(Refused, match="at byte"):
            reader.open(
                b"GGUF\3\0\0\0"
                + bytes(random.choice((0, 0, 0, 1, 4, 8, 9, 255)) for _ in range(random.randrange(60)))
                + b"\xff"
            )


_HUGE = struct.pack("<Q", 2**63)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "at byte 0, in the header: it does not begin with GGUF"),
        (b"GGU", "does not begin with GGUF"),
        (b"GGML" + bytes(20), "does not begin with GGUF"),
        (file(version=1), "version 1, expected 2 or 3"),
        (file(version=0x3000000), "version 50331648, expected 2 or 3 of a little-endian file"),
        (file(fields=2**64 - 1), "in the name of a field: 8 bytes are wanted, the file has 0 more"),
        (file(tensors=2**64 - 1), "in the name of a tensor: 8 bytes are wanted"),
        (file(_HUGE, fields=1), "in the name of a field: 9223372036854775808 bytes are wanted"),
        (file(field("a", 13, b""), fields=1), "at byte 37, in field 'a': a value of type 13, expected 0 to 12"),
        (file(field("a", 8, struct.pack("<Q", 2**64 - 1)), fields=1), "in field 'a': 18446744073709551615 bytes are wanted"),
        (file(field("a", 9, struct.pack("<IQ", 8, 2**61)), fields=1), "in field 'a': an array of 2305843009213693952 values of 8 bytes"),
        (file(field("a", 9, struct.pack("<IQ", 0, 2**64 - 1)), fields=1), "values of 1 bytes or more, the file has 0 bytes more"),
        (file(field("a", 9, struct.pack("<IQ", 9, 0)), fields=1), "an array of arrays"),
        (file(field("a", 9, struct.pack("<IQ", 77, 0)), fields=1), "a value of type 77"),
        (file(field("a", 10, _HUGE), fields=1), "9223372036854775808 is more than an int64 holds"),
        (file(field("a", 7, b"\1") * 2, fields=2), "in field 'a': another field has this name"),
        (file(field("general.alignment", 4, struct.pack("<I", 0)), fields=1), "in field 'general.alignment': 0, expected a power of two"),
        (file(field("general.alignment", 4, struct.pack("<I", 24)), fields=1), "24, expected a power of two"),
        (file(field("general.alignment", 11, struct.pack("<q", -(2**63))), fields=1), "-9223372036854775808, expected a power"),
        (file(field("general.alignment", 8, text("x")), fields=1), "field 'general.alignment' is not an integer"),
        (file(tensor("x", (4,), offset=16), tensors=1, data=64), "in tensor 'x': an offset of 16, expected a multiple of 32"),
        (file(tensor("x", (4,), offset=64), tensors=1, data=64), "its 16 bytes at offset 64 are not in the file, which has 64 bytes"),
        (file(tensor("x", (17,)), tensors=1, data=64), "its 68 bytes at offset 0 are not in the file"),
        (file(tensor("x", (4,), offset=2**64 - 32), tensors=1, data=64), "at offset 18446744073709551584 are not in the file"),
        (file(tensor("x", (4,), format=99, offset=96), tensors=1, data=64), "its 0 bytes at offset 96 are not in the file"),
        (file(tensor("x", (4,)) * 2, tensors=2, data=64), "in tensor 'x': another tensor has this name"),
        (file(tensor("x", (1, 1, 1, 1, 1)), tensors=1, data=64), "5 dimensions, expected 4 or fewer"),
        (file(tensor("x", (0, 4)), tensors=1, data=64), "a dimension of 0 is 0 or too large"),
        (file(tensor("x", (2**63,)), tensors=1, data=64), "a dimension of -9223372036854775808 is 0 or too large"),
        (file(tensor("x", (2**32, 2**32)), tensors=1, data=64), "a dimension of 4294967296 is 0 or too large"),
        (file(tensor("x", (2**62,)), tensors=1, data=64), "4611686018427387904 values are too many"),
        (file(tensor("x", (33,), format=3), tensors=1, data=64), "rows of 33 values, expected a multiple of 32, a block of format 3"),
        (file(tensor("x", (), format=3), tensors=1, data=64), "rows of 1 values, expected a multiple of 32"),
    ],
)  # fmt: skip
def test_files_that_are_refused(reader: Reader, data: bytes, expected: str) -> None:
    with pytest.raises(Refused) as refused:
        reader.open(data)
    assert expected in str(refused.value)
    assert str(refused.value).startswith("the GGUF file: ")


def test_files_at_the_limits(reader: Reader) -> None:
    reader.open(file())
    assert reader.tensors() == []
    big = field("general.alignment", 11, struct.pack("<q", 2**62))
    reader.open(file(big, fields=1))
    with pytest.raises(Refused, match="are not in the file, which has 0 bytes of tensors"):
        reader.open(file(big, tensor("x", (1,)), fields=1, tensors=1, data=64))
    reader.open(file(tensor("x", ()), tensor("y", (16,)), tensors=2, data=64, version=2))
    assert reader.tensor("x") == (0, (), bytes(4))
    assert reader.tensor("y") == (0, (16,), bytes(64))
    reader.open(file(tensor("x", (4,), format=99), tensors=1, data=64))
    with pytest.raises(Refused, match="tensor 'x' has format 99, which is not known"):
        reader.tensor("x")


def test_what_is_no_file(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, expected in {
        "none": "No such file or directory",
        "": "it is empty, or cannot be mapped",
        "empty": "it is empty",
    }.items():
        with pytest.raises(Refused) as refused:
            reader.open(tmp_path / name)
        assert str(refused.value).startswith(f"{tmp_path / name}: {expected}")
