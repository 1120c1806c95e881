"""The tree of a profile: frames with metrics. It is written as hatchet's JSON, which proton-viewer reads too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_EXCLUSIVE, _PROPERTY = " (exc)", " (pty)"


@dataclass
class Frame:
    """A scope or kernel. `metrics` are its own, without those of its children."""

    name: str
    metrics: dict[str, Any] = field(default_factory=dict)
    children: dict[str, Frame] = field(default_factory=dict)

    def at(self, path: Iterable[str]) -> Frame:
        """Returns the frame below this one that names lead to."""
        frame = self
        for name in path:
            frame = frame.children.setdefault(name, Frame(name))
        return frame

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Adds numbers to what is there; `NAME (pty)` and text take its place. `NAME (exc)` is a metric that parents do not sum up."""
        for key, value in metrics.items():
            name = key.removesuffix(_EXCLUSIVE).removesuffix(_PROPERTY)
            number = value.tolist() if hasattr(value, "tolist") else value
            if key.endswith(_PROPERTY) or isinstance(number, str) or name not in self.metrics:
                self.metrics[name] = number
            elif isinstance(number, (list, tuple)):
                self.metrics[name] = [old + new for old, new in zip(self.metrics[name], number, strict=True)]
            else:
                self.metrics[name] += number

    def record(self) -> dict[str, Any]:
        """Returns the frame as hatchet's JSON has it."""
        children = [child.record() for child in self.children.values()]
        return {"frame": {"name": self.name, "type": "function"}, "metrics": self.metrics, "children": children}


def is_summed(key: str, value: Any) -> bool:
    """Whether parents sum up a metric of their children: the root lists those."""
    return not key.endswith((_EXCLUSIVE, _PROPERTY)) and not isinstance(value, str)
