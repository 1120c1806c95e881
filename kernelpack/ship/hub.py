"""A built folder as a repository of Hugging Face's `kernels`: a folder for each build variant, and the card."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from string import Template
from typing import Any

from kernelpack.errors import BuildError
from kernelpack.files import generated
from kernelpack.ship.manifest import NAME, SIGNATURE, Manifest, compare, read_manifest, sha256

_CUDA = ("cu126", "cu130")
"""The oldest CUDA of each major release for which there are releases of torch 2.10 and later: `kernels` takes a variant for it and for all
later ones of that release."""
_STABLE_ABI = "torch-stable-abi210"
"""The stable ABI that op libraries use: that of TORCH_TARGET_VERSION, for this torch and all later ones."""
_MACHINES = {62: "x86_64", 183: "aarch64"}
"""What `kernels` calls machines, by the e_machine of ELF (System V ABI)."""
_CARD = Template(
    """---
# $mark $version
library_name: kernels
license: $license
tags:
- kernels
---

# $name

Ops for PyTorch: torch 2.10 and later, $targets. They need no compiler and no CUDA toolkit.

```python
from kernels import get_local_kernel

$namespace = get_local_kernel("PATH_OF_THIS_REPOSITORY")  # get_kernel("OWNER/$name", ...) from the Hub
$namespace.ops  # torch.ops.$namespace
```

`manifest.json` in each folder of `build` states the SHA-256 of its files; `sbom.cdx.json` what they are made of.
"""
)


def write_repository(folder: Path, repository: Path, *, license: str, version: int = 1) -> list[Path]:
    """Writes a built folder as a repository and returns its variants: `torch-stable-abi210-cpu-x86_64-linux` and, with kernels for GPUs,
    one for each major release of CUDA. All hold the same files. `license` and `version` are what the Hub says of it. Raises
    BuildError for a folder that differs from its manifest, PackError where it has none."""
    manifest = read_manifest(folder)
    different = compare(folder, manifest)
    if different.altered or different.missing:
        raise BuildError(f"{folder}: {'; '.join(different.sentences())}", cure="build it again: kernelpack build")
    name = manifest.namespace.replace("_", "-")
    if re.fullmatch("[a-z][a-z0-9-]*[a-z0-9]", name) is None:
        raise BuildError(
            f"kernels of the Hub have names of small letters, digits and dashes, a letter first; {manifest.namespace} makes none",
            cure="build with another --namespace",
        )
    shipped = [file for file in (*manifest.files, NAME, SIGNATURE) if "/" not in file and (folder / file).is_file()]
    files: dict[str, str | bytes] = {file: (folder / file).read_bytes() for file in shipped}
    card = {"license": license, "mark": generated.MARK, "version": manifest.kernelpack, "name": name}
    texts = {"targets": ", ".join(manifest.targets), "namespace": manifest.namespace}
    written: dict[Path, str | bytes] = {repository / "README.md": _CARD.substitute(card | texts)}
    machine, variants = _machine(folder / f"lib{manifest.namespace}_ops.so"), []
    for backend, described in _backends(manifest).items():
        variants.append(repository / "build" / f"{_STABLE_ABI}-{backend}-{machine}-linux")
        record = {
            "id": f"kernelpack_{manifest.namespace}_{backend}_{sha256(folder / NAME)[:16]}",
            "name": name,
            "version": version,
            "license": license,
            "python-depends": [],
            "backend": described,
        }
        metadata = json.dumps(record, indent=1) + "\n"
        written |= {variants[-1] / file: data for file, data in {**files, "metadata.json": metadata}.items()}
    for path in written:
        generated.check(path)
    for path, content in written.items():
        generated.write_if_changed(path, content)
    return variants


def _backends(manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Returns what `metadata.json` says of each backend of a library, by the backend's name in variants."""
    found: dict[str, dict[str, Any]] = {}
    if any(target.startswith("cpu:") for target in manifest.targets):
        found["cpu"] = {"type": "cpu"}
    arches = re.findall(r"^cuda:sm_(\d+)(\d)(\w?)$", "\n".join(manifest.targets), re.MULTILINE)
    if arches:
        described = {"type": "cuda", "archs": [f"{major}.{minor}{suffix}" for major, minor, suffix in arches]}
        found |= dict.fromkeys(_CUDA, described)
    if not found:
        raise BuildError(
            f"{', '.join(manifest.targets)} are no targets that the Hub has variants for", cure="build for cpu or cuda"
        )
    return found


def _machine(library: Path) -> str:
    """Returns what machine's code a library is."""
    (number,) = struct.unpack_from("<H", library.read_bytes()[:20], 18)
    if number not in _MACHINES:
        raise BuildError(
            f"{library} is code for machine {number} of ELF, which the Hub has no variants for", cure="build it for x86_64"
        )
    return _MACHINES[number]
