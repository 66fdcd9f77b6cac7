"""Hooks of MkDocs (mkdocs.yml): pages from outside of docs/, the API reference, and links that leave docs/.

The documents are written for whoever reads them in the repository, so their links are paths in it. In the site a link
to a document that is a page becomes a link to that page, and one to any other file becomes its address in the
repository. A link to nothing is a warning, which a strict build takes for an error.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LOG = logging.getLogger("mkdocs.hooks.docs_site")
ROOT = Path(__file__).parents[1]
BRANCH = "main"
LINK = re.compile(r"(!?\[(?:[^\[\]`]|`[^`]*`|!\[[^\]]*\]\([^)]*\))*\]\()([^)\s]+)(\))")
CODE = re.compile(r"^( *)(```+).*?^\1\2 *$|(`+)(?!`).+?(?<!`)\3(?!`)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the documents of the repository and a page for each entry of the reference."""
    for source, page in config.extra["documents"].items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for title, modules in config.extra["reference"].items():
        files.append(File.generated(config, f"reference/{title}.md", content=_reference(title, modules)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the links of a page from places in the repository to places in the site."""
    pages: dict[str, str] = config.extra["documents"]
    sources = {site: source for source, site in pages.items()}
    own = page.file.src_uri
    source = sources.get(own, f"docs/{own}")

    def place(path: str) -> str:
        """Where the file `path` of the repository is found, relative to this page."""
        if path in pages or path.startswith("docs/"):
            target = pages.get(path) or path.removeprefix("docs/")
            if files.get_file_from_path(target) is None and (ROOT / path / "README.md").is_file():
                target = posixpath.join(target, "README.md")
            return posixpath.relpath(target, posixpath.dirname(own) or ".")
        if f"{path}/README.md" in pages:
            return place(f"{path}/README.md")
        if not (ROOT / path).exists():
            LOG.warning("%s links to %s, which is not there", source, path)
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{config.repo_url.rstrip('/')}/{kind}/{BRANCH}/{path}"

    def rewritten(match: re.Match[str]) -> str:
        path, mark, anchor = match[2].partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        return (
            match[1]
            + place(posixpath.normpath(posixpath.join(posixpath.dirname(source), path)))
            + mark
            + anchor
            + match[3]
        )

    return _outside_code(markdown, lambda text: LINK.sub(rewritten, text))


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """`change` of all that is no code; links whose text has code in it count as text."""
    blocks: list[str] = []

    def hide(match: re.Match[str]) -> str:
        blocks.append(match[0])
        return f"\0{len(blocks) - 1}\0"

    changed = change(CODE.sub(hide, markdown))
    return re.sub("\0(\\d+)\0", lambda match: blocks[int(match[1])], changed)


def _reference(title: str, names: list[str]) -> str:
    parts = [f"# {title}\n"]
    modules = [name for name in names if _is_module(name)]
    for name in names:
        heading = f"## {name}\n\n" if len(modules) > 1 else ""
        options = {"heading_level": 3 if heading else 2} | ({} if name in modules else {"show_root_heading": True})
        lines = "".join(f"      {option}: {str(value).lower()}\n" for option, value in options.items())
        parts.append(f"{heading}::: {name}\n    options:\n{lines}")
    return "\n".join(parts)


def _is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()
