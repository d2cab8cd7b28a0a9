"""Pages of the site that lie outside of docs/: README as its first page, and each file that a page links to."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
CODE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")


def page_of(path: str) -> str:
    """The page that shows a file of the project."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "index.md" if path == "README.md" else f"files/{path.removesuffix('.md')}.md"


def targets(path: str, text: str) -> list[str]:
    """The files and folders of the project that a page links to."""
    links = [link for part in CODE.split(text)[::2] for link in LINK.findall(part)]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in links if ":" not in link]


def text_of(path: str) -> str:
    """A file as a page; a folder as one page of all its files."""
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text(encoding="utf-8")
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    parts = [f"## {file.name}\n\n````{file.suffix[1:]}\n{file.read_text(encoding='utf-8')}````\n" for file in files]
    return "\n".join([f"# {path}\n", *parts])


def on_files(files: Files, *, config: Any) -> Files:
    """Add README, and what is linked to, however far."""
    waiting = ["README.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    added: set[str] = set()
    while waiting:
        path = waiting.pop()
        text = text_of(path)
        if not path.startswith("docs/") and path not in added:
            added.add(path)
            files.append(File.generated(config, page_of(path), content=text))
        if path.endswith(".md"):
            found = targets(path, text)
            waiting += [each for each in found if (ROOT / each).exists() and each[:5] != "docs/" and each not in added]
    ORIGINS.update({page_of(path): path for path in added})
    return files


ORIGINS: Final[dict[str, str]] = {}
"""Where pages that are not in docs/ come from."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Let links lead to pages."""
    source = page.file.src_uri
    path = ORIGINS.get(source, f"docs/{source}")
    if not path.endswith(".md"):
        return markdown

    def link(match: re.Match[str]) -> str:
        if ":" in match[0]:
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[0]))
        return posixpath.relpath(page_of(target), posixpath.dirname(source) or ".")

    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)
