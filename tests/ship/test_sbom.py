"""The bill of materials is valid CycloneDX, and names what the library is made of with the versions that are installed."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kernelpack.ship.manifest import read_manifest, sha256
from kernelpack.ship.sbom import sbom


def test_it_is_valid_and_holds_versions(folder: Path) -> None:
    text = (folder / "sbom.cdx.json").read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"part"')) is not None
    bill = json.loads(text)
    component = bill["metadata"]["component"]
    assert component["hashes"] == [{"alg": "SHA-256", "content": sha256(folder / "libsample_ops.so")}]
    parts = {part["name"]: part for part in bill["components"]}
    assert set(parts) == {"kernelpack", "torch", "libstdc++", "zstd", "libdevice"}
    tools = {tool["name"]: tool for tool in bill["metadata"]["tools"]["components"]}
    assert set(tools) == {"kernelpack", "llvmlite", "LLVM", "ptxas", "zstd", "gcc"}
    assert tools["llvmlite"]["version"] == importlib.metadata.version("llvmlite")
    assert tools["ptxas"]["version"] == importlib.metadata.version("nvidia-cuda-nvcc")
    assert parts["torch"]["version"] == importlib.metadata.version("torch").partition("+")[0]
    for row in (*parts.values(), *tools.values()):
        assert row["licenses"]
        assert "version" in row or row["name"] == "libdevice"
    refs = [component["bom-ref"], *(row["bom-ref"] for row in (*bill["components"], *tools.values()))]
    assert len(refs) == len(set(refs))
    assert "timestamp" not in text
    assert "serialNumber" not in text


def test_a_library_without_images_holds_nothing_that_unpacks_them(folder: Path) -> None:
    tools = {name: stated for name, stated in read_manifest(folder).tools.items() if name != "assembler"}
    bill = json.loads(sbom(folder / "libsample_ops.so", "0.1.0", tools, compressed=False))
    assert [part["name"] for part in bill["components"]] == ["kernelpack", "torch", "libstdc++"]
    assert "ptxas" not in json.dumps(bill)
