"""What groups of switches are made of: an attribute is what the program set it to, or else what its environment variable says."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Generic, TypeVar

from kernelpack.errors import BuildError, OptionError

T = TypeVar("T")
G = TypeVar("G", bound="base_knobs")

_TRUE = ("1", "true", "on", "y", "yes")
_FALSE = ("0", "false", "off", "n", "no")


def truth(key: str, text: str) -> bool:
    """Returns what the text of a variable that is a switch means. Raises OptionError for a text that means nothing."""
    if text.lower() not in (*_TRUE, *_FALSE):
        raise OptionError(
            f"{key}={text} is neither on nor off",
            cure=f"set it to one of {', '.join(_TRUE)}, or of {', '.join(_FALSE)}, or unset it",
        )
    return text.lower() in _TRUE


def command_of(key: str, text: str, what: str) -> list[str]:
    """Returns the program that a variable names, and the options after it: `ccache g++ -O1`. Raises BuildError where there is no
    such program."""
    if shutil.which(text) is not None:  # its path may hold spaces
        return [text]
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise BuildError(f"{key}={text} is no command: {problem}", cure="close the quote") from None
    if not words or shutil.which(words[0]) is None:
        raise BuildError(
            f"{what} {words[0] if words else ''!r} was not found",
            cure=f"apt-get install g++, or set {key} to another; options may follow its name: {key}='ccache g++ -O1'",
        )
    return words


def is_count(text: str) -> bool:
    """Whether a text is a number from 1 to 9999."""
    return re.fullmatch(r"0*[1-9][0-9]{0,3}", text) is not None


def expanded(path: str) -> str:
    """Returns a path with `~` and `~name` replaced. Raises OptionError for the home of a user that there is not."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        raise OptionError(
            f"there is no home for {found.partition('/')[0]}, where {path} would be",
            cure="set KERNELPACK_CACHE_DIR, or the variable that says so, to a folder that can be made",
        )
    return found


class Env:
    """What a knob is set to that shall follow its variable again: `knobs.cache.dir = knobs.env`."""

    def __repr__(self) -> str:
        return "env"


env = Env()


class env_base(Generic[T]):
    """An attribute of a group: what the program set, else what the variable says, else the default, which may be a function of the
    group. `meaning` is for those that kernelpack itself reads."""

    def __init__(self, key: str, default: T | Callable[[Any], T], *, meaning: str = "") -> None:
        self.key = key
        self.default = default
        self.meaning = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        if group is None:
            return self
        if self.name in group.__dict__:
            return group.__dict__[self.name]
        text = os.environ.get(self.key, "")
        if text:
            return self.parse(text)
        return self.default(group) if callable(self.default) else self.default

    def __set__(self, group: Any, value: T | Env) -> None:
        if isinstance(value, Env):
            self.__delete__(group)
            return
        group.__dict__[self.name] = value
        if sys.modules["kernelpack.knobs"].propagate_env:
            text = self.text(value)
            if text is None:
                os.environ.pop(self.key, None)
            else:
                os.environ[self.key] = text

    def __delete__(self, group: Any) -> None:
        group.__dict__.pop(self.name, None)

    def parse(self, text: str) -> Any:
        """Returns what a variable's text means."""
        return text

    def text(self, value: T) -> str | None:
        """Returns what a child process finds in its environment; None: nothing."""
        return None if value is None else str(value)


class env_str(env_base[str]):
    """A text."""


class env_opt_str(env_base[str | None]):
    """A text, or None."""

    def __init__(self, key: str, default: str | None = None, *, meaning: str = "") -> None:
        super().__init__(key, default, meaning=meaning)


class env_bool(env_base[bool]):
    """True (1, true, on, y, yes) or False (0, false, off, n, no). Raises OptionError for a variable that is neither."""

    def __init__(self, key: str, default: bool = False, *, meaning: str = "") -> None:
        super().__init__(key, default, meaning=meaning)

    def parse(self, text: str) -> bool:
        return truth(self.key, text)

    def text(self, value: bool) -> str:
        return "1" if value else "0"


class env_opt_bool(env_base[bool | None]):
    """True, False, or None."""

    def __init__(self, key: str, default: bool | None = None, *, meaning: str = "") -> None:
        super().__init__(key, default, meaning=meaning)

    def parse(self, text: str) -> bool:
        return truth(self.key, text)

    def text(self, value: bool | None) -> str | None:
        return None if value is None else "1" if value else "0"


class env_int(env_base[int]):
    """A whole number. Raises OptionError for a variable that is none."""

    def __init__(self, key: str, default: int = 0, *, meaning: str = "") -> None:
        super().__init__(key, default, meaning=meaning)

    def parse(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise OptionError(f"{self.key}={text} is no whole number", cure=f"unset {self.key}") from None


class env_class(env_base[type | None]):
    """A class; its variable names it as `module:Class`."""

    def __init__(self, key: str, *, meaning: str = "") -> None:
        super().__init__(key, None, meaning=meaning)

    def parse(self, text: str) -> Any:
        module, _, name = text.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as problem:
            raise OptionError(f"{self.key}={text} names no class: {problem}", cure="write it as module:Class") from None

    def text(self, value: type | None) -> str | None:
        return None if value is None else f"{value.__module__}:{value.__qualname__}"


class base_knobs:
    """A group of switches. Setting an attribute that it does not have is a mistake."""

    @property
    def knob_descriptors(self) -> dict[str, env_base[Any]]:
        """The attributes that stand for variables."""
        found = (vars(kind).items() for kind in reversed(type(self).__mro__))
        return {name: knob for names in found for name, knob in names if isinstance(knob, env_base)}

    @property
    def knobs(self) -> dict[str, Any]:
        """The values of all variables of the group."""
        return {name: getattr(self, name) for name in self.knob_descriptors}

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):
            public = sorted(name for name in set(dir(self)) - set(dir(base_knobs)) if name[0] != "_")
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(public)}")
        object.__setattr__(self, name, value)
        self._changed()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._changed()

    def _changed(self) -> None:
        """Called after every change."""

    def _state(self) -> dict[str, Any]:
        """Returns what the program set, in a form that later changes do not reach."""
        return dict(vars(self))

    def _restore(self, state: dict[str, Any]) -> None:
        vars(self).clear()
        vars(self).update(state)
        self._changed()

    def copy(self: G) -> G:
        """Returns another group in which the same is set."""
        other = type(self)()
        other._restore(self._state())
        return other

    def reset(self: G) -> G:
        """Lets every attribute follow its variable again."""
        self._restore(type(self)()._state())
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is set inside a `with` ends with it, in the environment too."""
        state = self._state()
        texts = {knob.key: os.environ.get(knob.key) for knob in self.knob_descriptors.values()}
        try:
            yield
        finally:
            for key, text in texts.items():
                if text is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = text
            self._restore(state)
