"""The code in the documents: blocks fenced as python, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASE.md")
DOCUMENTS = sorted([*(ROOT / name for name in AT_THE_TOP), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class CodeBlock:
    """A block: its document, its first line counted from 1, and its code or session."""

    document: Path
    line: int
    text: str

    @property
    def session(self) -> bool:
        """True if the block is an interactive session with its output."""
        return self.text.startswith(">>>")

    @property
    def spark(self) -> bool:
        """True if the block needs Spark."""
        return "eddy.spark" in self.text

    @property
    def name(self) -> str:
        """The place of the block: document and line."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> list[CodeBlock]:
    """Return the blocks of a document."""
    text = document.read_text()
    matches = _FENCE.finditer(text)
    return [CodeBlock(document, text.count("\n", 0, match.start(1)) + 1, match[1]) for match in matches]
