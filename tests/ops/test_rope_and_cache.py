"""rope_and_cache writes the slots that it is given and no others; what is no slot or position is an error, or leaves memory as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelpack.errors import EmulationError
from tests.ops.fused_cases import table
from tests.ops.grid import module_of
from tests.simt.emulated_ops import call

E4M3 = torch.float8_e4m3fn
BLOCKS, BLOCK, KEY_HEADS, SIZE = 5, 4, 2, 16
SLOTS = BLOCKS * BLOCK


def arguments(
    slots: list[int], positions: list[int] | None = None, cache: torch.dtype = torch.float32, scale: float = 1.0
) -> dict[str, torch.Tensor]:
    count = len(slots)
    query, key, value = (torch.randn(count, heads, SIZE) * scale for heads in (3, KEY_HEADS, KEY_HEADS))
    caches = [torch.randn(BLOCKS, BLOCK, KEY_HEADS, SIZE).to(cache) for _ in range(2)]
    return {
        "query": query, "key": key, "value": value, "key_cache": caches[0], "value_cache": caches[1],
        "positions": torch.arange(count) if positions is None else torch.tensor(positions), "angles": table(2000, SIZE),
        "slots": torch.tensor(slots),
    }  # fmt: skip


def built(given: dict[str, torch.Tensor]) -> None:
    torch.ops.kernelpack.rope_and_cache(**given)


def developed(given: dict[str, torch.Tensor]) -> None:
    module_of("rope_and_cache").rope_and_cache(**given)


def emulated(given: dict[str, torch.Tensor], target: str = "cuda:sm_90a") -> None:
    call(target, module_of("rope_and_cache").rope_and_cache, list(given.values()), {})


Run = Callable[[dict[str, torch.Tensor]], None]

SLOT = r"assertion( failed)?: rope_and_cache: slots: one lies outside of key_cache, which has blocks \* block size slots"
POSITION = r"assertion( failed)?: rope_and_cache: positions: one lies outside of the rows of angles"
TWICE = r"assertion( failed)?: rope_and_cache: slots: one is written twice"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "first slot after the cache": ({"slots": [3, SLOTS]}, SLOT),
    "slot beyond 2^32": ({"slots": [2**32 + 1, 3]}, SLOT),
    "largest slot": ({"slots": [2**63 - 1]}, SLOT),
    "position after the table": ({"slots": [1, 2], "positions": [0, 2000]}, POSITION),
    "negative position": ({"slots": [1, 2], "positions": [-1, 0]}, POSITION),
    "slot given twice": ({"slots": [1, 7, 4, 7]}, TWICE),
    "first and last of many": ({"slots": [5, *[-1] * 1000, 5]}, TWICE),
}


@pytest.mark.parametrize("run", [built, developed])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_slots_and_positions_are_errors(name: str, run: Run) -> None:
    given, said = WRONG[name]
    with pytest.raises(RuntimeError, match=said):
        run(arguments(**given))
    right = arguments([0, -1, SLOTS - 1, -7])
    expected = module_of("rope_and_cache").reference(**right)
    run(right)
    for got, exact in zip((right["query"], right["key"], right["key_cache"], right["value_cache"]), expected, strict=True):
        torch.testing.assert_close(got, exact)


@pytest.mark.parametrize("name", [name for name in WRONG if "many" not in name])
def test_kernels_for_gpus_find_them_when_they_debug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELPACK_DEBUG", "1")
    given, said = WRONG[name]
    with pytest.raises(EmulationError, match=said):
        emulated(arguments(**given))


def test_kernels_for_gpus_leave_memory_alone_else() -> None:
    """A slot outside is not written, and the emulator sees no access outside; a position outside gives NaN."""
    given = arguments([2, SLOTS, 2**40, -1], positions=[3, 4, 5, 2000])
    caches = given["key_cache"].clone(), given["value_cache"].clone()
    expected = module_of("rope_and_cache").reference(
        **{name: x[:3] if len(x) == 4 else x for name, x in given.items()} | {"slots": torch.tensor([2, -1, -1])}
    )
    emulated(given)
    torch.testing.assert_close(given["query"][:3], expected[0])
    torch.testing.assert_close(given["key"][:3], expected[1])
    assert given["query"][3].isnan().all()
    assert given["key"][3].isnan().all()
    for got, exact, before in zip((given["key_cache"], given["value_cache"]), expected[2:], caches, strict=True):
        torch.testing.assert_close(got, exact)
        assert int((got != before).any(-1).any(-1).sum()) == 1


@pytest.mark.parametrize("run", [built, emulated])
def test_what_8_bits_cannot_hold_is_their_largest_number(run: Run) -> None:
    """Also infinity; NaN stays."""
    given = arguments([3, 9], positions=[0, 0], cache=E4M3)
    given["angles"][0] = torch.tensor([1.0, 0.0]).repeat_interleave(SIZE // 2)
    for name in ("key", "value"):
        given[name][0, 0, :6] = torch.tensor([1e9, -1e9, 460.0, float("inf"), float("-inf"), 448.0])
        given[name][1, 1, 0] = float("nan")
    if "angles" in given:  # a turn by nothing still multiplies its partner by 0
        given["key"][0, 0, 8:14] = 1.0
    run(given)
    for name in ("key_cache", "value_cache"):
        slots = given[name].flatten(0, 1).float()
        assert slots[3, 0, [0, 1, 2, 5]].tolist() == [448.0, -448.0, 448.0, 448.0]
        assert slots[3, 0, [3, 4]].tolist() == [448.0, -448.0]
        assert slots[9, 1, 0].isnan()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_does_not_depend_on_the_others(dtype: torch.dtype) -> None:
    """A token's bits are those that it has alone, whatever else is in the batch."""
    given = {
        name: x.to(dtype) if name not in ("angles", "positions", "slots") else x for name, x in arguments([9, 0, 7, 3]).items()
    }
    alone = [{name: x[i : i + 1].clone() if len(x) == 4 else x.clone() for name, x in given.items()} for i in range(4)]
    built(given)
    for i, one in enumerate(alone):
        built(one)
        assert torch.equal(one["query"][0], given["query"][i])
        assert torch.equal(one["key"][0], given["key"][i])
        for name in ("key_cache", "value_cache"):
            slot = int(one["slots"][0])
            assert torch.equal(one[name].flatten(0, 1)[slot], given[name].flatten(0, 1)[slot])
