"""The page as one HTML file that opens from disk: the same sources, every file of them inside.

Browsers do not import modules from disk, so the import map names each one by a `data:` address. What the page asks a
server for stands in data blocks: gzip in base64, letters and digits alone, so that no text in them can end a block or
begin a tag. The policy lets nothing run but the scripts of the page, by their hashes, and its modules.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from ragen.view.pages import INDEX, INLINE, PAGE, read_page_file

ASSETS = "/assets/"
NOT_MODULES = frozenset({"theme.js", "live_worker.js"})
"""A script that runs before the first paint, and the worker that listens to a server."""
STYLE = re.compile(r'<link rel="stylesheet" href="/assets/([^"]+)">')
ICON = re.compile(r'href="/assets/([^"]+)" type="([^"]+)"')
SCRIPT = re.compile(r'<script src="/assets/([^"]+)"></script>')
MODULE = re.compile(r'<script type="module" src="/assets/([^"]+)"></script>')
LEVEL = 9
"""Of gzip: a report is written once and sent around."""


def pack(content: bytes) -> str:
    """Bytes as the text of a data block."""
    return base64.b64encode(gzip.compress(content, LEVEL, mtime=0)).decode()


def bundle(blocks: Mapping[str, str]) -> str:
    """The page with its data blocks: id -> packed content."""
    html = _text(INDEX)
    html = ICON.sub(lambda found: f'href="{data_address(found[1], found[2])}"', html)
    html = STYLE.sub(lambda found: f"<style>{_text(found[1])}</style>", html)
    html = SCRIPT.sub(lambda found: f"<script>{_text(found[1])}</script>", html)
    found = INLINE.search(html.encode())
    assert found, "index.html has no import map"
    imports = json.dumps({"imports": modules(json.loads(found[1])["imports"])}, separators=(",", ":"))
    html = INLINE.sub(lambda _: f'<script type="importmap">{imports}</script>'.encode(), html.encode()).decode()
    html = MODULE.sub(lambda found: f'<script type="module">import "app/{found[1]}";</script>', html)
    assert ASSETS not in html, "index.html names a file in a way that the report does not know"
    policy = content_security_policy(_inline("script", html), _inline("style", html))
    html = html.replace("<head>\n", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n', 1)
    data = "".join(f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in blocks.items())
    return html.replace("</body>", f"{data}</body>")


def content_security_policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """Nothing is fetched from anywhere. Of the headers of the server, those that a page can give itself."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))} data:",
            f"style-src {' '.join(map(_hash, styles))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def modules(import_map: Mapping[str, str]) -> dict[str, str]:
    """Name -> `data:` address of every module: {"app/": "/assets/"} -> {"app/run.js": "data:...", ...}"""
    found = {}
    for name, address in import_map.items():
        file = address.removeprefix(ASSETS)
        if name.endswith("/"):
            files = sorted(path.name for path in (PAGE / file).glob("*.js") if path.name not in NOT_MODULES)
            found |= {name + each: data_address(str(PurePosixPath(file) / each)) for each in files}
        else:
            found[name] = data_address(file)
    return found


def data_address(file: str, kind: str | None = None) -> str:
    """A file of the page as an address that holds it."""
    content, known = read_page_file(file)
    return f"data:{kind or known};base64,{base64.b64encode(content).decode()}"


def _text(file: str) -> str:
    content = read_page_file(file)[0].decode()
    assert file == INDEX or "</script" not in content, f"{file} cannot stand inside of a page"
    return content


def _inline(tag: str, html: str) -> list[str]:
    return re.findall(rf"<{tag}(?: type=\"\w+\")?>(.*?)</{tag}>", html, re.DOTALL)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
