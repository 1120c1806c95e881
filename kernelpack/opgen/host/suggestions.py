"""What to write in a host function instead of functions of torch and of the language, which people know and C++ does not."""

from __future__ import annotations

from typing import Any

_FILLED = "allocate with kp.empty_like(x) or kp.empty(shape, dtype, device), and have a kernel store the values"
_TORCH = {
    "empty": "write kp.empty(shape, dtype, device)",
    "empty_like": "write kp.empty_like(x)",
    "empty_strided": "write kp.empty_strided(shape, strides, dtype, device)",
    "empty_permuted": "write kp.empty_strided(shape, strides, dtype, device)",
    **dict.fromkeys(
        ("zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "tensor", "arange", "rand", "randn"), _FILLED
    ),
    "_check": "write kp.check(condition, message)",
    "_assert": "write kp.check(condition, message)",
    "get_num_threads": "write kp.num_threads()",
    "numel": "write x.numel()",
    "is_tensor": "write x is not None",
    "broadcast_shapes": "write kp.broadcast_shapes(a, b)",
    "broadcast_tensors": "read x with kp.broadcast_strides(x, shape)",
    "broadcast_to": "read x with kp.broadcast_strides(x, shape)",
    **dict.fromkeys(("sym_max", "sym_min"), "write max(a, b), min(a, b): they follow symbolic sizes, too"),
    **dict.fromkeys(("sym_int", "sym_float", "sym_not", "sym_sqrt"), "write int(n), float(n), not b, math.sqrt(n)"),
}
_LANGUAGE = {"cdiv": "write kp.cdiv(a, b)", "maximum": "write max(a, b)", "minimum": "write min(a, b)"}
_METHODS = {
    "new_empty": "write kp.empty(shape, x.dtype, x.device)",
    "new_empty_strided": "write kp.empty_strided(shape, strides, x.dtype, x.device)",
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "zero_", "fill_"), _FILLED),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), "read it with kp.broadcast_strides(x, shape)"),
    **dict.fromkeys(
        ("view", "reshape", "flatten"), "give the kernel sizes and strides; kp.collapse_rows(x, ndims=n) merges dimensions"
    ),
    **dict.fromkeys(("t", "transpose", "permute", "T", "mT"), "give the kernel the strides in another order"),
    "contiguous": "check it, kp.check(x.is_contiguous(), ...), or give the kernel x's strides",
    "nelement": "write x.numel()",
    "itemsize": "write x.element_size()",
    "ndimension": "write x.dim()",
    "is_cpu": "write not x.is_cuda",
    "data_ptr": "give the kernel the tensor itself",
}


def for_function(function: Any) -> str | None:
    """Returns what to write instead of a call of a function, if there is something."""
    name = getattr(function, "__name__", "")
    module = str(getattr(function, "module", "") or getattr(function, "__module__", ""))  # a kernel's is that of its function
    if module.partition(".")[0] == "torch":
        return _TORCH.get(name)
    return _LANGUAGE.get(name) if module.startswith("kernelpack.language") else None


def for_method(name: str) -> str | None:
    """Returns what to write instead of a method or a property of a tensor, if there is something."""
    return _METHODS.get(name)
