"""Elements of SVG. All text and all attributes are escaped here, and only here.

Everything is drawn with attributes of its elements and without a style sheet, because a page may hold many drawings.
Sizes are whole pixels, so that the same description gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from unicodedata import category

FONT = "system-ui, sans-serif"
INK, FAINT, PAPER = "#24292f", "#6e7781", "#ffffff"
LINE, STORED, STEM = "#8c959f", "#d9ead3", "#ddebf7"
KEYS = ("#0969da", "#bf3989", "#1a7f37", "#bc4c00", "#8250df", "#9a6700", "#cf222e", "#1b7c83")
"""Colours of keys, repeated if there are more."""


def printable(text: str) -> str:
    """Return a text without characters that XML forbids or a terminal would execute.

    >>> printable("a\\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join("�" if category(character) in ("Cc", "Cs", "Cn", "Cf") else character for character in text)


def escaped(text: str) -> str:
    """Return a text as the content of an element or attribute of HTML or SVG."""
    return escape(printable(text), quote=True)


def element(name: str, *inside: str, **attributes: object) -> str:
    """Return an element. `inside` is SVG; in names of attributes, "_" stands for "-"."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{attribute_text}>{''.join(inside)}</{name}>" if inside else f"<{name}{attribute_text}/>"


def words(
    text: str, x: int, y: int, *, size: int = 11, anchor: str = "middle", fill: str = INK, weight: int = 400
) -> str:
    """Return a line of text whose baseline is at y."""
    return element("text", escaped(text), x=x, y=y, font_size=size, text_anchor=anchor, fill=fill, font_weight=weight)


def tip(text: str) -> str:
    """Return the text that appears over an element."""
    return element("title", escaped(text))


def picture(width: int, height: int, parts: Iterable[str], label: str) -> str:
    """Return a whole drawing; `label` is its description for screen readers."""
    paper = element("rect", width=width, height=height, fill=PAPER)
    return element(
        "svg",
        tip(label),
        paper,
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        font_family=FONT,
        role="img",
    )
