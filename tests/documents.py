"""The code in the documents: blocks fenced as python, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block: where it is, its first line counted from 1, and its code or session."""

    document: Path
    line: int
    text: str

    @property
    def session(self) -> bool:
        """Whether it shows an interactive session, with what it prints."""
        return self.text.startswith(">>>")

    @property
    def spark(self) -> bool:
        """Whether it needs Spark."""
        return "eddy.spark" in self.text

    @property
    def name(self) -> str:
        """Where to find it."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> list[Block]:
    """Give the blocks of a document."""
    text = document.read_text()
    found = _FENCE.finditer(text)
    return [Block(document, text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]
