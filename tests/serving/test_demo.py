"""The demo notices what disagrees, fits a terminal, and runs from one end to the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from serving_examples import demo

ROOT = Path(__file__).parents[2]


def test_embeddings_that_differ_are_a_disagreement(capsys: pytest.CaptureFixture[str]) -> None:
    sentences = (ROOT / "serving_examples" / "page.txt").read_text().splitlines()
    embeddings = torch.nn.functional.normalize(torch.randn(len(sentences), 384))
    changed, broken = embeddings.clone(), embeddings.clone()
    changed[3, 5] += 2e-5
    broken[3, 5] = float("nan")
    assert demo.show_similarities(sentences, embeddings, embeddings + 1e-6)
    said = capsys.readouterr().out
    assert "agrees: largest difference" in said
    assert max(map(len, said.splitlines())) <= 80
    assert not demo.show_similarities(sentences, changed, embeddings)
    assert not demo.show_similarities(sentences, broken, embeddings)
    assert capsys.readouterr().out.count("DISAGREES") == 2


def test_running_text_has_the_asked_shape_and_marks() -> None:
    page = torch.tensor([[101, 7, 8, 102, 0], [101, 9, 10, 11, 102]])
    assert demo.running_text(page, 3, 7).tolist() == [
        [101, 7, 8, 9, 10, 11, 102],
        [101, 9, 10, 11, 7, 8, 102],
        [101, 7, 8, 9, 10, 11, 102],
    ]
    assert demo.running_text(page, 1, 1).tolist() == [[101]]


@pytest.mark.slow
def test_the_demo_runs_plain_where_there_is_no_terminal() -> None:
    """Two minutes: both models, exported and served by C++ programs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "serving_examples" / "demo.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "--model" not in line) <= 80
    assert done.stdout.count("agrees:") == 3
    assert done.stdout.count("none is libpython") == 1
