"""Calls the op of a project that `kernelpack new` wrote, from its wheel, with nothing of kernelpack installed: `python smoke.py NAME`."""

import importlib
import importlib.util
import sys

import torch

name = sys.argv[1]
assert importlib.util.find_spec("kernelpack") is None, "kernelpack is installed, so this shows nothing of the wheel"
package = importlib.import_module(name)
op = getattr(torch.ops, name).l2_normalize
for dtype, tolerance in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
    x = torch.randn(5, 300).to(dtype)
    expected = torch.nn.functional.normalize(x.double())
    torch.testing.assert_close(op(x).double(), expected, rtol=tolerance, atol=tolerance)
    compiled = torch.compile(lambda x: op(x), fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), op(x))
refusal = ""
try:
    op(torch.randn(3))
except RuntimeError as error:
    refusal = str(error)
assert "x must have 2 dimensions" in refusal, refusal
package.warmup(backend="cpu")
print(f"torch {torch.__version__}")
