"""What differs between two records of what was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.same.recorder import read

Key = tuple[str, ...]
Records = Mapping[Key, Mapping[str, frozenset[str]]]
"""For each kernel or file, the hashes of each stage: one, or more where several have the same key."""


def records(folder: Path) -> Records:
    """Reads a folder that a recorder wrote."""
    found: dict[Key, dict[str, frozenset[str]]] = {}
    for key, stages in read(folder):
        known = found.setdefault(key, {})
        for stage, digest in stages.items():
            known[stage] = known.get(stage, frozenset()) | {digest}
    return found


def differences(before: Records, after: Records) -> list[str]:
    """Returns a sentence for each kernel or file that is not what it was: the first stage that differs, or which side lacks it."""
    found = [
        f"{_name(key)}: differs from {stage} on"
        for key in sorted(before.keys() & after.keys())
        for stage in [_first_other(before[key], after[key])]
        if stage is not None
    ]
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    replaced = {key[:-1] for key in gone} & {key[:-1] for key in new}
    found += [f"{_name(key)}: its ttir differs" for key in sorted(replaced)]
    found += [f"{_name(key)}: is not made any more" for key in gone if key[:-1] not in replaced]
    return found + [f"{_name(key)}: was not made before" for key in new if key[:-1] not in replaced]


def _first_other(before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]) -> str | None:
    """Returns the first stage whose hashes differ; a stage that one side did not reach differs too."""
    return next((stage for stage in [*before, *after] if before.get(stage) != after.get(stage)), None)


def _name(key: Key) -> str:
    return f"{key[1]} for {key[0]}" if len(key) > 2 else f"the file {key[-1]}"
