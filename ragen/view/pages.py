"""The files of the page, and the hash that lets its import map run."""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from pathlib import Path

from ragen.view.reading.folders import NotThere

PAGE = Path(__file__).with_name("page")
INDEX = "index.html"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".html": "text/html"}
"""What the machine's own tables may call otherwise; a module of another type does not load."""
INLINE = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)


def read_page_file(name: str, folder: Path = PAGE) -> tuple[bytes, str]:
    """Content and type of a file of the page; what lies outside the folder does not exist."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    if name not in files:
        raise NotThere("The page has no such file.")
    kind = TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return files[name].read_bytes(), kind


def script_hashes(html: bytes) -> list[str]:
    """The scripts that stand in the page itself: its import map."""
    digests = (hashlib.sha256(script).digest() for script in INLINE.findall(html))
    return [f"sha256-{base64.b64encode(digest).decode()}" for digest in digests]
