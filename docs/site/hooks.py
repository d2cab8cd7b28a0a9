"""Pages of the site from outside of docs/: README, the commands' options, and files that pages link to."""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
CODE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
COMMAND: Final = re.compile(
    r"\A```(?=\n(?:\(|[A-Z_]+=\S+ )?(?:aws|cat|cd|dptext|mkdir|pip|python|scripts/|spark-submit|umask)\b)"
)
"""The beginning of code that is typed into a shell, though its block names no language."""
OPTIONS: Final = ROOT / "docs/site/options.py"
PYTHON: Final = ROOT / ".venv/bin/python"  # has the package, and this environment does not
ORIGINS: Final[dict[str, str]] = {}
"""The files that pages show which are not in docs/, by page."""


def page_of(path: str) -> str:
    """The page that shows a file of the project."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "index.md" if path == "README.md" else f"files/{path.removesuffix('.md')}.md"


def target(path: str, link: str) -> str:
    """The file or folder of the project that a link of one of its files leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def text_of(path: str) -> str:
    """A file as a page; a folder as one page of its files."""
    place = ROOT / path
    if path.endswith(".md"):
        return place.read_text(encoding="utf-8")
    files = sorted(filter(Path.is_file, place.iterdir())) if place.is_dir() else [place]
    parts = [
        f"## {f.name}\n\n````{f.suffix[1:]}\n{f.read_text(encoding='utf-8')}````\n" for f in files
    ]
    return "\n".join([f"# {path}\n", *parts])


def on_files(files: Files, *, config: Any) -> Files:
    """Add the page of options, README, and what is linked to, however far."""
    waiting = ["README.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    options = subprocess.run([PYTHON, OPTIONS], capture_output=True, text=True, check=True).stdout
    files.append(File.generated(config, "options.md", content=options))
    ORIGINS.clear()
    while waiting:
        path = waiting.pop()
        if page_of(path) in ORIGINS:
            continue
        text = text_of(path)
        if not path.startswith("docs/"):
            ORIGINS[page_of(path)] = path
            files.append(File.generated(config, page_of(path), content=text))
        links = [link for part in CODE.split(text)[::2] for link in LINK.findall(part)]
        found = {target(path, link) for link in links} if path.endswith(".md") else set()
        waiting += [
            each for each in found if not each.startswith("docs/") and (ROOT / each).exists()
        ]
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links lead to pages, and commands be shown as such."""
    source = page.file.src_uri
    path = ORIGINS.get(source, f"docs/{source}")
    if not path.endswith(".md"):
        return markdown

    def link(match: re.Match[str]) -> str:
        return posixpath.relpath(page_of(target(path, match[0])), posixpath.dirname(source) or ".")

    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    parts[1::2] = [COMMAND.sub("```sh", part) for part in parts[1::2]]
    return "".join(parts)
