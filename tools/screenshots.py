"""Pictures of `ragen view` in a real Chromium, for README and for looking at every page (make browser installs it).

    python tools/screenshots.py checkpoints --route /run/0%2Fragen%2Ffirst --out docs/figures/view.png
    python tools/screenshots.py checkpoints --every --out /tmp/pictures   # every page, wide and narrow, light and dark

A route is what stands behind the # of an address of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

WIDTHS, THEMES = (1280, 400), ("light", "dark")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of runs")
    parser.add_argument("--route", default="/runs")
    parser.add_argument("--every", action="store_true", help="every page of every run; --out is a folder then")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800, help="0: the whole page")
    parser.add_argument("--theme", choices=THEMES, default="light")
    args = parser.parse_args(argv)
    with server(args.folder) as address, chromium() as browser:
        if not args.every:
            print(take(browser, f"{address}#{args.route}", args.out, args.width, args.height, args.theme))
            return
        for name, route in routes(address).items():
            for width in WIDTHS:
                for theme in THEMES:
                    out = args.out / f"{name}_{width}_{theme}.png"
                    print(take(browser, f"{address}#{route}", out, width, 0, theme))


def take(browser: Any, address: str, out: Path, width: int, height: int, theme: str) -> Path:
    """One picture; without a height it is as high as the page."""
    out.parent.mkdir(parents=True, exist_ok=True)
    size = {"width": width, "height": height or 800}
    with browser.new_context(viewport=size, color_scheme=theme) as context:
        page = context.new_page()
        page.goto(address)
        page.locator("h1").wait_for()
        page.wait_for_timeout(1000)  # live pages are never idle
        page.get_by_role("status").filter(has_text="Reading").first.wait_for(state="hidden")
        page.screenshot(path=out, full_page=not height)
    return out


def routes(address: str) -> dict[str, str]:
    """A name and the route of every page, with the first episode of each run's last rollout."""
    found = {"runs": "/runs", "sweeps": "/sweeps", "play": "/play"}
    runs = get(f"{address}api/runs")["runs"]
    for run in runs:
        path, name = f"/run/{quote(run['id'], safe='')}", re.sub(r"\W+", "-", run["name"])
        found |= {f"{name}_{view or 'charts'}": f"{path}/{view}".rstrip("/") for view in views(run["kind"])}
        files = get(f"{address}api/runs/{quote(run['id'], safe='')}/episodes")["files"]
        if files:
            found[f"{name}_group"] = f"{path}/group/{quote(files[0]['name'])}/0"
            for colour in ("logprob", "mask", "advantage"):
                found[f"{name}_episode_{colour}"] = f"{path}/episode/{quote(files[0]['name'])}/0?colour={colour}"
    if len(runs) > 1:
        found["compare"] = "/compare/" + "/".join(quote(run["id"], safe="") for run in runs[:3])
    for sweep in get(f"{address}api/sweeps")["sweeps"]:
        name = re.sub(r"\W+", "-", sweep["id"])
        found[f"sweep_{name}"] = f"/sweep/{quote(sweep['id'], safe='')}"
    return found


def views(kind: str) -> tuple[str, ...]:
    return ("", "episodes") if kind == "evaluation" else ("", "episodes", "filter", "gradients", "play")


def get(address: str) -> Any:
    with urlopen(address) as answer:
        return json.load(answer)


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`ragen view` on a free port, with a cache of its own."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache, "COLUMNS": "300", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "ragen.cli", "view", str(folder), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found, "ragen view has not started"
            try:
                yield found[0]
            finally:  # else leaving Popen would wait for a server that never ends
                process.terminate()


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("No chromium is installed. Run: make browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


if __name__ == "__main__":
    main()
