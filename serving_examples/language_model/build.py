"""Builds the C++ server: `python -m serving_examples.language_model.build FOLDER`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils.cpp_extension import CUDA_HOME

SERVER = Path(__file__).parent / "server"
NEEDS = {"pcre2.h": "libpcre2-dev", "httplib.h": "libcpp-httplib-dev", "nlohmann/json.hpp": "nlohmann-json3-dev"}
"""Headers that the server is compiled with, and the Debian packages that have them. Without the last two it serves no HTTP."""
HTTPLIB_FLAGS = [f"-DCPPHTTPLIB_{name}_SUPPORT" for name in ("OPENSSL", "ZLIB", "BROTLI")]
"""What Debian's library was compiled with, as pkg-config says: its structs have other fields without."""
_OF_HTTP = ("api.cpp", "http.cpp")
_OF_TORCH = ("choose.cpp", "package.cpp", "torch_model.cpp", "weights.cpp")
"""They are compiled as one file: nearly all of a compiler's time goes to torch's headers, which each of them would read again."""


class BuildFailed(Exception):
    """The server was not built; the text says why."""


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("KERNELPACK_CXX") or "g++")


def missing() -> list[str]:
    """Returns the Debian packages whose headers this machine has not."""

    def is_there(header: str) -> bool:
        source = f"#define PCRE2_CODE_UNIT_WIDTH 8\n#include <{header}>\n"
        command = [*_compiler(), "-std=c++20", "-E", "-x", "c++", "-"]
        return subprocess.run(command, input=source, text=True, capture_output=True).returncode == 0

    return [package for header, package in NEEDS.items() if not is_there(header)]


def build_server(folder: Path, optimization: str = "-O2") -> Path:
    """Compiles what changed since it was compiled in `folder`; returns the program. Raises BuildFailed, with the compiler's errors."""
    absent = missing()
    if "libpcre2-dev" in absent:
        raise BuildFailed("pcre2.h was not found, which the tokenizer needs\n  to fix: apt-get install libpcre2-dev")
    home = Path(torch.__file__).parent
    left_out = (*_OF_TORCH, *(_OF_HTTP if absent else ()))
    sources = [path for path in sorted(SERVER.glob("*.cpp")) if path.name not in left_out]
    flags = ["-std=c++20", optimization, f"-I{SERVER}", f"-Wa,-I{SERVER}", *(["-DLM_WITHOUT_HTTP"] if absent else [])]
    includes = [f"-isystem{home / part}" for part in ("include", "include/torch/csrc/api/include")]
    libraries = ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-lpcre2-8", "-lpthread", "-ldl"]
    if torch.version.cuda and CUDA_HOME:
        flags.append("-DLM_CUDA")
        includes.append(f"-isystem{CUDA_HOME}/include")
        libraries += [f"-L{CUDA_HOME}/lib64", "-ltorch_cuda", "-lc10_cuda", "-lcudart"]
    if not absent:
        libraries.append("-lcpp-httplib")
    newest = max(path.stat().st_mtime for path in (*SERVER.glob("*.h"), Path(__file__)))
    newest_of_torch = max((SERVER / name).stat().st_mtime for name in _OF_TORCH)
    folder.mkdir(parents=True, exist_ok=True)
    of_torch = folder / "of_torch.cpp"
    of_torch.write_text("".join(f'#include "{name}"\n' for name in _OF_TORCH))

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}{'.plain' if absent else ''}.o"
        changed = newest_of_torch if source == of_torch else source.stat().st_mtime
        if not target.exists() or target.stat().st_mtime < max(newest, changed):
            own = includes if source == of_torch else HTTPLIB_FLAGS if source.name in _OF_HTTP else []
            run([*_compiler(), *flags, *own, "-c", str(source), "-o", str(target)])
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, [of_torch, *sources]))  # the longest first
    program = folder / "server"
    run([*_compiler(), *map(str, objects), "-o", str(program), f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}", *libraries])
    return program


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildFailed(f"{shlex.join(command)}\n{done.stderr}")


if __name__ == "__main__":
    for package in missing():
        print(f"{package} is not installed; to fix: apt-get install {package}", file=sys.stderr)
    print(build_server(Path(sys.argv[1])))
