"""Code blocks of the documentation.

A block is left out only with a reason, in a comment right above it:

    <!-- skip: needs a cluster -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
_BLOCK = re.compile(
    r"(?:<!-- skip: (?P<reason>[^>]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page=page,
            line=text.count("\n", 0, m.start("code")) + 1,
            language=m["language"],
            code=m["code"],
            reason=m["reason"],
        )
        for m in _BLOCK.finditer(text)
    ]


def all_blocks(*languages: str) -> list[Block]:
    found = [b for page in PAGES for b in blocks(page)]
    return [b for b in found if b.language in languages and b.reason is None]
