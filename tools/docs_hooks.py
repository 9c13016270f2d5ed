"""What mkdocs.yml needs beyond docs/: the start page, the Python reference, and links into the repository.

The pages are written for the repository, where `../ragen/types.py` is a link. The site holds docs/ only, so such a
link leads to `source_url` of mkdocs.yml, or becomes text that names the file. A link to a file that does not exist is a
warning, which `mkdocs build --strict` (`make docs`) takes for an error.
"""

import ast
import json
import logging
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.ragen")

START = "index.md"
REFERENCE = "reference.md"
INTRODUCTION = """\
All that `import ragen` offers; [Python](python.md) shows it at work. The keys of a `Config` are those of the YAML
files: `ragen config` prints them with a sentence each ([configuration](configuration.md))."""
SECTIONS = {
    "Configurations": ["load_config", "Config"],
    "Environments": ["make_env", "check_env", "TextEnv", "Env", "StepResult", "step_info"],
    "Playing": ["Agent", "Episode", "Turn"],
    "Training": ["Trainer", "Step", "Group", "needs"],
    "Reading a run": ["load_run", "Run"],
    "Errors": ["RagenError", "ConfigError"],
}
"""Heading of the reference -> names of ragen.__all__."""

OPTIONS = {"Config": {"show_signature": False}}
"""Name -> options of mkdocstrings. The sentences of the keys stand in the annotations, too long for a signature."""
STYLES = ".md-grid { max-width: 82rem; } /* room for code of 120 columns */\n"

CODE_OR_LINK = re.compile(
    r"^```.*?^```[ ]*$"  # a fenced block
    r"|\[(?P<text>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)"
    r"|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)",  # code within a line
    flags=re.MULTILINE | re.DOTALL,
)


def on_files(files: Any, config: Any) -> Any:
    """README.md is the start page, and the reference is written from the names that ragen offers."""
    from mkdocs.structure.files import File  # only mkdocs runs this; tests read the rest without it

    root = root_of(config)
    files.append(File.generated(config, START, abs_src_path=str(root / "README.md")))
    files.append(File.generated(config, REFERENCE, content=reference(offered(root / "ragen" / "__init__.py"))))
    files.append(File.generated(config, "site.css", content=STYLES))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    name = page.file.src_uri
    source = "README.md" if name == START else f"docs/{name}"
    return site_links(markdown, source, root=root_of(config), source_url=config.extra["source_url"])


def root_of(config: Any) -> Path:
    return Path(config.config_file_path).parent


def offered(module: Path) -> list[str]:
    """The names in `__all__`, without those of Python itself (`__version__`)."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
    raise ValueError(f"{module} has no __all__. The reference lists the names that it holds.")


def reference(names: list[str]) -> str:
    """The page of mkdocstrings' directives, in the order of SECTIONS."""
    sorted_in = [name for section in SECTIONS.values() for name in section]
    for name in sorted({*names} ^ {*sorted_in}):
        where = "ragen.__all__" if name in names else "SECTIONS"
        log.warning(
            f"The reference: {name} is only in {where}. Keep SECTIONS of tools/docs_hooks.py and __all__ equal."
        )
    parts = ["# Reference", INTRODUCTION]
    for title, section in SECTIONS.items():
        parts += [f"## {title}", *map(directive, section)]
    return "\n\n".join(parts) + "\n"


def directive(name: str) -> str:
    """What mkdocstrings replaces by the documentation of a name; its options are a block of YAML."""
    options = [f"        {key}: {json.dumps(value)}" for key, value in OPTIONS.get(name, {}).items()]
    return "\n".join([f"::: ragen.{name}", *(["    options:", *options] if options else [])])


def site_links(markdown: str, source: str, *, root: Path, source_url: str) -> str:
    """The text of a page with its links as the site needs them.

    source "README.md", [Training](docs/training.md#is-it-healthy) -> [Training](training.md#is-it-healthy)
    source "docs/python.md", [page](../tests/api/test_page.py) -> <abbr title="tests/api/test_page.py">page</abbr>
    """

    def replace(match: re.Match[str]) -> str:
        text, target = match["text"], match["target"]
        if target is None or "://" in target or target.startswith("#"):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (root / path).exists():
            # Of the reference, which only the site has, mkdocs itself knows whether it is there.
            if path != f"docs/{REFERENCE}":
                log.warning(f"{source}: the link [{text}]({target}) leads to no file.")
            return match[0]
        if path == "README.md" or (path.startswith("docs/") and (root / path).is_file()):
            return f"[{text}]({relative(path, source)}{hash_sign}{anchor})"
        if source_url:
            return f"[{text}]({source_url.rstrip('/')}/{path}{hash_sign}{anchor})"
        return f'<abbr title="{escape(path)}">{text}</abbr>'

    return CODE_OR_LINK.sub(replace, markdown)


def relative(path: str, source: str) -> str:
    """The way from one page of the site to another, both named as files of the repository."""
    there, here = (START if name == "README.md" else name.removeprefix("docs/") for name in (path, source))
    return posixpath.relpath(there, posixpath.dirname(here) or ".")
