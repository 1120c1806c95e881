"""Which targets the op library that kernelpack brings is compiled for."""

from __future__ import annotations

import pytest

from kernelpack import knobs
from kernelpack.backends.installed import backends
from kernelpack.cli.targets import op_library_targets
from kernelpack.errors import TargetError


def texts(monkeypatch: pytest.MonkeyPatch, stated: str) -> list[str]:
    monkeypatch.setenv("KERNELPACK_OP_TARGETS", stated)
    return [str(target) for target in op_library_targets()]


def test_it_is_compiled_for_this_machine_unless_more_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [str(backend.devices()[0].targets[0]) for backend in backends().values() if backend.devices()]
    assert texts(monkeypatch, "") == here
    assert texts(monkeypatch, "native") == here
    assert texts(monkeypatch, "all") == list(knobs.ALL_OP_TARGETS)
    assert texts(monkeypatch, "cpu:x86-64-v3, cuda:sm_80") == ["cpu:x86-64-v3", "cuda:sm_80"]
    assert texts(monkeypatch, "none") == []


@pytest.mark.parametrize("stated", ["foo", "cuda:sm_91", "cpu:native,"])
def test_what_is_no_target_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, stated: str) -> None:
    with pytest.raises(TargetError) as raised:
        texts(monkeypatch, stated)
    assert str(raised.value).startswith(f"KERNELPACK_OP_TARGETS={stated}: ")
    assert "set it to native, all, none, or targets separated by commas" in str(raised.value)
