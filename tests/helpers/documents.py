"""Pages that show what was printed; ``pytest --rewrite`` writes new output into them."""

import re
from difflib import SequenceMatcher
from pathlib import Path


def pattern_of(shown: str) -> str:
    """What matches output that is shown: ``...`` is any text of a line, or any lines by itself."""
    # At the end of a line in columns it is also what does not fit and goes on below, behind spaces.
    lines = [".*?".join(map(re.escape, line.split("..."))) + "\n" for line in shown.splitlines()]
    wrapped = [re.sub(r"(?<=\\ )\.\*\?\n$", r".*\n(?: +.*\n)*?", line) for line in lines]
    return "".join(r"(?:.*\n)*?" if line == ".*?\n" else line for line in wrapped)


def rewritten(shown: str, printed: str) -> str:
    """The output that a page should show now: it is shortened where it was shortened before."""
    if re.fullmatch(pattern_of(shown), printed):
        return shown
    groups: list[list[str]] = [[]]
    for line in shown.splitlines():
        if line == "...":
            groups.append([])
        else:
            groups[-1].append(line)
    if len(groups) == 1:
        return "\n".join(kept_short(shown.splitlines(), printed.splitlines())) + "\n"
    rest = printed.splitlines()
    lines: list[str] = []
    for i, group in enumerate(groups):
        start = 0
        if group and i:
            last = len(rest) - len(group)
            start = max(last, 0)
            if i < len(groups) - 1:
                start = max(range(start + 1), key=lambda s: likeness(group, rest[s:]))
        new = rest[start : start + len(group)]
        lines += ["..."] if i else []
        lines += kept_short(group, new)
        rest = rest[start + len(group) :]
    return "\n".join(lines) + "\n"


def likeness(group: list[str], printed: list[str]) -> float:
    """How alike lines are, one by one."""
    return sum(SequenceMatcher(None, *pair).ratio() for pair in zip(group, printed, strict=False))


def kept_short(shown: list[str], printed: list[str]) -> list[str]:
    """The lines that were printed; one that fits a shown line with ``...`` in it stays as it is shown."""
    fitting = {
        line: short
        for line in printed
        for short in shown
        if "..." in short and re.fullmatch(pattern_of(short), line + "\n")
    }
    return [fitting.get(line, line) for line in printed]


def rewrite(page: Path, code: str, shown: str, printed: str) -> None:
    """Replace the output that the page shows below the code.

    Raises:
        ValueError: Some of it stands elsewhere, as in a notebook of several blocks.
    """
    text = page.read_text(encoding="utf-8")
    old = f"{code}```\n\n```text\n{shown}```"
    if text.count(old) != 1:
        raise ValueError(f"{page}: rewrite by hand:\n{code}\n{printed}")
    new = f"{code}```\n\n```text\n{rewritten(shown, printed)}```"
    page.write_text(text.replace(old, new), encoding="utf-8")
