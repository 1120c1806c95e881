"""Tensor dtypes as ops see them: one row joins the names of torch, ttir and the language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """A tensor dtype. `name` is torch's, `ttir` the pointee of a pointer in ttir, `language` the name in signatures."""

    name: str
    ttir: str
    language: str
    bytes: int

    def __str__(self) -> str:
        return self.name

    @property
    def short(self) -> str:
        """As part of a variant's name."""
        if self.name == "bool":
            return "b8"
        return self.language if self.name.startswith("uint") else self.ttir.lower()


DTYPES = {
    row.name: row
    for row in (
        DType("float16", "f16", "fp16", 2),
        DType("bfloat16", "bf16", "bf16", 2),
        DType("float32", "f32", "fp32", 4),
        DType("float64", "f64", "fp64", 8),
        DType("float8_e4m3fn", "f8E4M3FN", "fp8e4nv", 1),
        DType("float8_e5m2", "f8E5M2", "fp8e5", 1),
        DType("int8", "i8", "i8", 1),
        DType("int16", "i16", "i16", 2),
        DType("int32", "i32", "i32", 4),
        DType("int64", "i64", "i64", 8),
        DType("uint8", "i8", "u8", 1),
        DType("uint16", "i16", "u16", 2),
        DType("uint32", "i32", "u32", 4),
        DType("uint64", "i64", "u64", 8),
        DType("bool", "i1", "i1", 1),
    )
}
LANGUAGE_NAMES = {row.name: row.language for row in DTYPES.values()} | {
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}
"""What the language calls the dtypes of torch's tensors that kernels take; ops take those of `DTYPES`."""
_BY_LANGUAGE = {row.language: row for row in DTYPES.values()} | {"int1": DTYPES["bool"]}
_BY_LANGUAGE |= {name: row for name, row in DTYPES.items() if "int" in name}


def dtype_of(value: object) -> DType | None:
    """Returns the row of a dtype of the language (`tl.float16`), of torch (`torch.float16`) or of this table, else None."""
    if isinstance(value, DType):
        return value
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return DTYPES.get(str(value).removeprefix("torch."))
    return _BY_LANGUAGE.get(getattr(value, "name", "")) if type(value).__name__ == "dtype" else None
