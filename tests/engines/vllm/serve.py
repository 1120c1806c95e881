"""Serves the model through vLLM's OpenAI server, with kernels that kernelpack compiles as they are called, and asks it for a text.

python -m tests.engines.vllm.serve    compares with the V1 runner, whose kernels are vLLM's own C++; ends with 1 where the texts differ
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from types import MappingProxyType

from tests.engines.environment import ROOT, python
from tests.engines.vllm.environment import RUNNERS, VLLM, variables

QUESTION = "What is the capital of France?"
PATIENCE_S = 300


@contextmanager
def server(folder: Path, runner: str, *options: str, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    """Runs a server, with `more` variables, and gives the address that it listens to."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    host, port = address.split(":")
    command = [python(folder), "-m", "vllm.entrypoints.openai.api_server", "--model", folder / "smollm2"]
    command += ["--served-model-name", "smollm2", "--dtype", "bfloat16", "--max-model-len", "2048", "--enforce-eager"]
    log = folder / f"serve-{runner}.log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [*command, "--host", host, "--port", port, *options],
            cwd=ROOT,
            env={**variables(folder, runner), **more},
            stdout=lines,
            stderr=lines,
        )
        try:
            wait_for(address, process, log)
            yield address
        finally:
            process.terminate()
            process.wait()


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the server answers."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(f"http://{address}/health", timeout=5).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server did not start:\n{log.read_text()[-3000:]}") from None
            time.sleep(0.05)


def ask(address: str, question: str, tokens: int = 48) -> str:
    """Returns the likeliest answer."""
    body = {"model": "smollm2", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": tokens}
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    VLLM.add_folder(parser)
    parser.add_argument("--question", default=QUESTION)
    args = parser.parse_args()
    VLLM.set_up(args.folder)
    answers = {}
    for runner in reversed(RUNNERS):
        started = time.monotonic()
        with server(args.folder, runner) as address:
            ready = time.monotonic()
            answers[runner] = ask(address, args.question)
            first = time.monotonic() - ready
            print(
                f"{runner}: started in {ready - started:.0f} s, first answer after {first:.1f} s: {answers[runner]!r}",
                flush=True,
            )
    kernels = sum(1 for path in (args.folder / "cache").rglob("*") if path.is_file())
    print(f"kernelpack's cache holds {kernels} kernels")
    sys.exit(len(set(answers.values())) != 1 or not kernels)


if __name__ == "__main__":
    main()
