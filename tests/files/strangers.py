"""What a stranger does to files of ours, and what we see as another user. Only root can play both."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

STRANGER = 12345
OTHER = 23456
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")


def give_to_stranger(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def as_user(user: int, body: Callable[[], None]) -> None:
    """Runs a function in a fork that belongs to another user; raises AssertionError with what it raised."""
    said, saying = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            body()
        except BaseException:
            os.write(saying, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(saying)
    os.waitpid(child, 0)
    with open(said, "rb") as pipe:
        text = pipe.read().decode()
    assert text == "", text
