"""Signatures of manifests by the key of whoever ships a folder: made and verified by model-signing, offline."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from kernelpack.errors import BuildError, UntrustedFileError
from kernelpack.files import generated
from kernelpack.ship.manifest import NAME, SIGNATURE, Manifest, compare, read_manifest


def sign(folder: Path, private_key: Path) -> Path:
    """Signs the manifest of a folder, which states all files of it, with an elliptic-curve key in PEM. Returns the signature's file.
    Raises PackError without a manifest, BuildError for a key that does not sign, and for a folder that differs from its manifest."""
    different = compare(folder, read_manifest(folder)).sentences()
    if different:
        raise BuildError(f"{folder} is not signed: {'; '.join(different)}", cure="build it again: kernelpack build")
    model_signing, file = _model_signing(), folder / SIGNATURE
    generated.check(file)
    try:
        model_signing.signing.Config().use_elliptic_key_signer(private_key=private_key).sign(folder / NAME, file)
    except (OSError, ValueError, TypeError) as problem:
        cure = "openssl ecparam -name prime256v1 -genkey -noout -out key.pem"
        raise BuildError(f"{private_key} is no private key that signs: {problem}", cure=cure) from None
    return file


def verify_signature(folder: Path, public_key: Path) -> Manifest:
    """Returns the manifest of a folder if this key's owner signed it. Raises UntrustedFileError if not."""
    file = folder / SIGNATURE
    cure = f"get the folder from its signer, or sign it: kernelpack sign {folder} --key KEY"
    if not public_key.is_file():
        raise UntrustedFileError(
            f"the public key {public_key} does not exist", cure="name the PEM file of the signer's public key"
        )
    for needed in (folder / NAME, file):
        if not needed.is_file():
            raise UntrustedFileError(f"{folder} is not signed: {needed.name} is missing", cure=cure)
    config = _model_signing().verifying.Config()
    try:
        config.use_elliptic_key_verifier(public_key=public_key)
    except (ValueError, TypeError) as problem:
        cure = "openssl ec -in key.pem -pubout -out public.pem"
        raise UntrustedFileError(f"{public_key} is no public key of an elliptic curve: {problem}", cure=cure) from None
    try:
        config.verify(folder / NAME, file)
    except Exception as problem:  # whatever the parts of a bundle, which anybody may have written, make of it
        what = str(problem).partition(":")[0] or type(problem).__name__
        raise UntrustedFileError(f"{file} is no signature of {NAME} by {public_key}: {what}", cure=cure) from None
    return read_manifest(folder)


def check_signed(folder: Path, public_key: Path) -> None:
    """Raises UntrustedFileError unless this key's owner signed a folder, and all that lies in it is what was signed."""
    found = compare(folder, verify_signature(folder, public_key)).sentences()
    if found:
        cure = "get the folder again from where it was signed"
        raise UntrustedFileError(f"{folder} is not what was signed: {'; '.join(found)}", cure=cure)


def _model_signing() -> ModuleType:
    try:
        import model_signing  # late: only who signs and verifies needs it
    except ImportError as problem:
        message = f"the package {problem.name or 'model_signing'} is not installed, by which folders are signed"
        raise BuildError(message, cure="pip install 'kernelpack[sign]'") from None
    module: ModuleType = model_signing
    return module
