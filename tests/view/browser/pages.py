"""How tests look at the page: open a route, collect what the browser complains about, check accessibility."""

from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import expect

AXE = Path(__file__).with_name("vendor") / "axe.min.js"
WATCH_POLICY = """document.addEventListener("securitypolicyviolation", (event) =>
    console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));"""


class Visitor:
    """A browser context with one tab."""

    def __init__(self, browser, address: str, *, width: int = 1280, theme: str = "light") -> None:
        self.address = address
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.add_init_script(WATCH_POLICY)
        self.complaints: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)

    def _note(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _dismiss(self, dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, route: str):
        """Load the page at #route, from the server or from a file."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{'' if self.address.startswith('file:') else '/'}#{route}")
        return self.page

    def violations(self) -> list[str]:
        """What axe-core finds serious on the page as it is."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")

    def __enter__(self) -> "Visitor":
        return self

    def expect_accessible(self, routes: Mapping[str, str], shown: str) -> None:
        """Every route shows something of `shown`, fits into the window, and axe-core and the browser find no fault."""
        for name, route in routes.items():
            page = self.open(route)
            expect(page.locator(shown).first).to_be_visible()
            assert self.violations() == [], name
            assert self.overflow() <= 0, name
        assert self.complaints == []

    def __exit__(self, *error) -> None:
        self.context.close()


def has_ink(page, chart: str) -> bool:
    """Whether something is drawn on the canvas of this chart."""
    return page.locator(f'[data-chart="{chart}"] canvas').evaluate(
        """(canvas) => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const colours = new Set();
            for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3]) colours.add(pixels.slice(i, i + 3).join());
            return colours.size > 8;
        }"""
    )
