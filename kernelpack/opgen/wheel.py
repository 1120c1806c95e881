"""Writes a wheel out of a built op library: what pip installs wherever torch is, with the platform that the library really runs on."""

from __future__ import annotations

import base64
import hashlib
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from kernelpack.errors import BuildError
from kernelpack.files import generated
from kernelpack.opgen.load import namespace_of
from kernelpack.pack.lock import read_lock
from kernelpack.pack.ninja import one_at_a_time
from kernelpack.ship import manifest
from kernelpack.version import VERSION

_CURE = "name the folder that kernelpack build wrote"
_MACHINES = {62: "x86_64", 183: "aarch64"}
"""By their numbers in the ELF specification."""
_OF_TORCH = frozenset(("libtorch*.so", "libc10*.so"))
"""What a library may need beside those of a manylinux: torch brings them."""
_SUMMARY = "Ops for torch: torch.ops.{}"


@dataclass(frozen=True)
class Wheel:
    """A wheel that was written. `platform` is its tag, such as manylinux_2_34_x86_64; `targets` is what its kernels were compiled for,
    `files` what the package holds."""

    path: Path
    platform: str
    targets: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def is_portable(self) -> bool:
        """Whether the tag promises more than a kind of machine: indexes of packages take no other."""
        return not self.platform.startswith("linux_")


def make_wheel(
    folder: Path | str, *, version: str, name: str | None = None, out: Path | str = "dist", licence: Path | str | None = None
) -> Wheel:
    """Writes the wheel of the op library in a folder that `kernelpack build` wrote, into the folder `out`. The distribution is called
    `name` (default: the namespace), the package as the namespace.

    The wheel holds what kernelpack wrote at the top of the folder, but for the file for CMake. The same folder gives the same bytes.
    Raises BuildError, and PackError for a lock file that is none.
    """
    directory = Path(folder).resolve()
    library = _library(directory)
    namespace = namespace_of(library)
    if namespace == "kernelpack":
        raise BuildError("a package kernelpack would hide kernelpack itself", cure="build with another --namespace")
    targets = tuple(sorted({target for target, _ in read_lock(directory / "ops.lock").hashes}))
    with one_at_a_time(directory / "build") if (directory / "build").is_dir() else nullcontext():
        files = {f"{namespace}/{path.name}": path.read_bytes() for path in _package_files(directory)}
    head = files[f"{namespace}/{library.name}"][:20]
    machine = _MACHINES.get(int.from_bytes(head[18:20], "little")) if head[:4] == b"\x7fELF" else None
    if machine is None:
        raise BuildError(
            f"{library} is no library for {' or '.join(_MACHINES.values())}", cure="build it again: kernelpack build"
        )
    distribution, release = _identity(namespace if name is None else name, version)
    stem = f"{distribution.replace('-', '_')}-{release}"
    licences = {} if licence is None else {f"{stem}.dist-info/licenses/{Path(licence).name}": Path(licence).read_bytes()}
    files |= licences | {f"{stem}.dist-info/METADATA": _metadata(distribution, release, namespace, licence).encode()}

    with tempfile.TemporaryDirectory() as scratch:  # what a library needs is asked of a wheel
        tried = Path(scratch) / f"{stem}-py3-none-linux_{machine}.whl"
        tried.write_bytes(_wheel(tried.with_suffix(".bytes"), files, stem, f"linux_{machine}"))
        platform = _platform(tried)
        data = _wheel(tried, files, stem, platform)
    _check_manifest(directory)
    path = Path(out).resolve() / f"{stem}-py3-none-{platform}.whl"
    generated.write(path, data)
    return Wheel(path, platform, targets, tuple(sorted(file for file in files if file.startswith(f"{namespace}/"))))


# -- what goes into it ------------------------------------------------------------------------------------------------------


def _library(directory: Path) -> Path:
    found = sorted(directory.glob("lib*_ops.so"))
    missing = [file for file in ("__init__.py", "ops.lock") if not (directory / file).is_file()]
    if len(found) != 1 or missing:
        raise BuildError(
            f"{directory} holds no op library" if not found else f"{directory} holds no whole op library", cure=_CURE
        )
    return found[0]


def _check_manifest(directory: Path) -> None:
    """Raises BuildError for a folder whose package would refuse to load: a file is not what the manifest beside it states."""
    stated = directory / manifest.NAME
    altered = manifest.compare(directory, manifest.read_manifest(directory)).altered if stated.is_file() else ()
    if altered:
        raise BuildError(
            f"{directory / altered[0]} was altered: its SHA-256 is not that of {manifest.NAME}",
            cure=f"build it again: kernelpack build; where the change is meant, remove {stated}",
        )


def _package_files(directory: Path) -> list[Path]:
    """Returns what kernelpack wrote at the top of a library's folder, but for the file by which CMake finds the headers beside it."""
    found = [path for path in sorted(directory.iterdir()) if path.is_file() and path.suffix != ".cmake"]
    return [path for path in found if not path.name.startswith(".") and generated.is_own(path)]


def _identity(name: str, version: str) -> tuple[str, str]:
    """Returns the name and version of a distribution, as pip writes them. Raises BuildError for those that it refuses."""
    try:
        from packaging.utils import InvalidName, canonicalize_name
        from packaging.version import InvalidVersion, Version
    except ModuleNotFoundError:
        raise _not_installed("packaging") from None
    try:
        canonicalize_name(name, validate=True)
    except InvalidName:
        raise BuildError(f"{name!r} is no name of a package", cure="write letters and digits, with - . _ between") from None
    try:
        return canonicalize_name(name), str(Version(version))
    except InvalidVersion:
        raise BuildError(f"{version!r} is no version of a package", cure="write numbers with dots, such as 0.1.0") from None


def _metadata(name: str, version: str, namespace: str, licence: Path | str | None) -> str:
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", f"Summary: {_SUMMARY.format(namespace)}"]
    if licence is not None:
        lines.append(f"License-File: {Path(licence).name}")
    return "\n".join([*lines, "Requires-Python: >=3.10", "Requires-Dist: torch>=2.10", ""])


# -- the file ---------------------------------------------------------------------------------------------------------------


def _wheel(scratch: Path, files: Mapping[str, bytes], stem: str, platform: str) -> bytes:
    """Returns the bytes of a wheel (https://packaging.python.org/en/latest/specifications/binary-distribution-format/): times,
    permissions and order are the same for the same files, which the library `wheel` leaves to the clock."""
    info = f"{stem}.dist-info"
    tag = f"Wheel-Version: 1.0\nGenerator: kernelpack {VERSION}\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
    held = {**files, f"{info}/WHEEL": tag.encode()}
    record = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(held.items())]
    held[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    first = f"{info}/WHEEL"  # as it is, where kernelpack.files.generated finds whose file this is
    with zipfile.ZipFile(scratch, "w") as archive:
        for name, data in sorted(held.items(), key=lambda item: (item[0] != first, item[0].startswith(info), item[0])):
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_STORED if name == first else zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | (0o755 if name.endswith(".so") else 0o644)) << 16
            archive.writestr(entry, data)
    return scratch.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _platform(wheel: Path) -> str:
    """Returns the tag of the oldest systems that have all symbols which the libraries of a wheel need, as auditwheel finds them."""
    try:
        from auditwheel.wheel_abi import analyze_wheel_abi
    except ModuleNotFoundError:
        raise _not_installed("auditwheel") from None
    try:  # kernels for higher levels of CPUs are chosen when they run: the levels that files state do not count
        found = analyze_wheel_abi(None, None, wheel, _OF_TORCH, disable_isa_ext_check=True, allow_graft=False)
    except Exception as problem:  # its reader of ELF files raises whatever one leads to that no linker wrote
        said = str(problem) or type(problem).__name__
        raise BuildError(f"auditwheel cannot read the library: {said}", cure="build it again: kernelpack build") from None
    name: str = found.overall_policy.name
    return name


def _not_installed(package: str) -> BuildError:
    return BuildError(f"{package} is not installed, which finds a wheel's platform", cure="pip install 'kernelpack[wheel]'")
