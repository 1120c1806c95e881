"""Compilations are not stopped by searches for cyclic garbage, whose length is that of everything a process holds."""

import gc
import threading

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.errors import CompilationError
from kernelpack.options import Options
from kernelpack.process_wide import collections_put_off
from kernelpack.runtime.compile import compile_kernel
from kernelpack.runtime.specialization import Specialization
from kernelpack.target import Target


@kp.jit
def many_words(p, seed, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.static_assert(BLOCK < 4096)
    tl.store(p + offsets, tl.rand(seed, offsets))


def compiled(block):
    special = Specialization((("p", "*fp32"), ("seed", "i32")), (("BLOCK", block),), ())
    return compile_kernel(many_words, special, Target.parse("cuda:sm_80+ptx"), Options())


@pytest.fixture
def searches():
    """Returns a list of the generations that are searched from now on."""
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_no_search_while_a_kernel_is_compiled(searches):
    compiled(1024)  # what is imported on first use
    thresholds = gc.get_threshold()
    gc.set_threshold(100, 1, 1)  # each search would be one through everything
    try:
        gc.collect()
        searches.clear()
        assert compiled(2048).image
    finally:
        gc.set_threshold(*thresholds)
    assert len(searches) <= 1, "one search, after it"


def test_searches_go_on_afterwards_even_after_an_error():
    with pytest.raises(CompilationError):
        compiled(8192)
    assert gc.isenabled()


def test_a_process_without_searches_stays_without():
    gc.disable()
    try:
        compiled(512)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_last_of_several_compilations_has_them_go_on():
    first_is_in, second_is_done = threading.Event(), threading.Event()

    def first():
        with collections_put_off:
            first_is_in.set()
            assert second_is_done.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_in.wait(10)
    with collections_put_off:
        pass
    assert not gc.isenabled()
    second_is_done.set()
    thread.join()
    assert gc.isenabled()
