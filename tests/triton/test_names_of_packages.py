"""What packages take from Triton exists here or is refused by name: docs/triton_names.json lists it, read from their source."""

from __future__ import annotations

import json

from docs.triton_names import RECORD, answers, ends_at, names_of

SOURCE = """
import triton.language as tl, numpy
import triton.backends.nvidia
from triton.runtime import driver, cache as store
from vllm.triton_utils import triton
from torch._inductor.config import triton as group
try:
    from triton.language.extra import libdevice as device
except ImportError:
    from triton.language.math import *

def f(x):
    import triton.testing
    group.unique_kernel_names = tl.core.constexpr
    return tl.sum(x).to(tl.float32), triton.knobs.runtime.hook, device.tanh(x), store.default(), numpy.triton, "tl.cumsum(x)"
"""


def test_each_exists_or_is_refused_by_name() -> None:
    record = json.loads(RECORD.read_text())
    names = sorted(set().union(*record["packages"].values()))
    assert len(names) > 400
    said = answers(names, "kernelpack.triton")
    assert {name: answer for name, answer in said.items() if answer.startswith("none")} == {}
    refused = {name for name, answer in said.items() if answer == "refused"}
    assert [name for name in refused if not name.startswith("triton.experimental")] == [
        name for name in refused if name.startswith(("triton._C", "triton.backends", "triton.language", "triton.compiler"))
    ]
    assert len(refused) < len(names) / 3


def test_the_sign_of_an_old_triton_is_absent() -> None:
    """Inductor takes the path of Triton 3.2 where there is an AttrsDescriptor."""
    signs = ["triton.compiler.compiler.AttrsDescriptor", "triton.backends.compiler.AttrsDescriptor"]
    assert set(signs) <= set(json.loads(RECORD.read_text())["not in Triton"])
    assert [answer.partition(" ")[0] for answer in answers(signs, "kernelpack.triton").values()] == ["none", "none"]


def test_sources_are_read_as_python_reads_them() -> None:
    assert names_of(SOURCE) == {
        "triton.backends.nvidia",
        "triton.knobs",
        "triton.knobs.runtime",
        "triton.knobs.runtime.hook",
        "triton.language",
        "triton.language.core",
        "triton.language.core.constexpr",
        "triton.language.extra.libdevice",
        "triton.language.extra.libdevice.tanh",
        "triton.language.float32",
        "triton.language.sum",
        "triton.runtime.cache",
        "triton.runtime.cache.default",
        "triton.runtime.driver",
        "triton.testing",
    }
    assert "triton.language.cumsum" in names_of(SOURCE, generates=True)


def test_names_end_where_modules_end() -> None:
    assert ends_at("triton.runtime.driver.active.nothing", "kernelpack.triton") is None
    assert ends_at("triton.language.nothing.at", "kernelpack.triton") == "triton.language.nothing"
    assert ends_at("triton.nothing.at.all", "kernelpack.triton") == "triton.nothing"
