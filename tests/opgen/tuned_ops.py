"""Ops that choose among configs, and whose results tell which one ran."""

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def probe_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0), BLOCK)


def calls(tensor):
    return [(tensor("x", rows, columns),) for rows in (1, 64) for columns in (16, 4096)]


@kp.op(
    "probe(Tensor x) -> Tensor",
    variants={"x": [tl.float32, tl.float16]},
    configs={"": kp.fastest([kp.Config({"BLOCK": block}) for block in (16, 64, 1024)], key=["rows", "columns"])},
    tune=calls,
)
def probe(x):
    rows, columns = x.shape
    out = kp.empty((rows,), tl.int32, x.device)
    probe_kernel[(rows,)](x, out, rows, columns)
    return out


@kp.autotune([kp.Config({"BLOCK": 32}), kp.Config({"BLOCK": 128})], key=["columns"])
@kp.jit
def autotuned_kernel(x, out, rows, columns, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0), BLOCK)


@kp.op("autotuned(Tensor x) -> Tensor", variants={"x": [tl.float32]}, tune=calls)
def autotuned(x):
    rows, columns = x.shape
    out = kp.empty((rows,), tl.int32, x.device)
    autotuned_kernel[(rows,)](x, out, rows, columns)
    return out


@kp.op(
    "sized(Tensor x) -> Tensor",
    variants={"x": [tl.float32], "SIZE": (0, 1, 2)},
    configs={"": lambda point: kp.Config({"BLOCK": 128 if point["SIZE"] == 1 else 32})},
)
def sized(x):
    rows, columns = x.shape
    out = kp.empty((rows,), tl.int32, x.device)
    probe_kernel[(rows,)](x, out, rows, columns, SIZE=0 if columns < 16 else 1 if columns < 4096 else 2)
    return out
