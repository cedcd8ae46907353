"""Settings of the site that `make docs` builds with Sphinx."""

from __future__ import annotations

import re
from typing import Any

import eddy

project = "eddy"
author = "the eddy authors"
copyright = "the eddy authors"
version = release = eddy.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"eddy {release}"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

smartquotes = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

_ENTRY = re.compile(r"(\S.*?)\s{2,}(\S.*)")
"""A row of a list of parameters: a name, two spaces or more, its meaning."""
_CODE = re.compile(r"`([^`]+)`(\w?)")


def _paragraphs(lines: list[str]) -> list[list[str]]:
    return [part.split("\n") for part in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")) if part.strip()]


def _as_rst(paragraph: list[str]) -> list[str]:
    """Return a paragraph of a docstring as reStructuredText.

    Rows of "name   meaning" become a definition list; indented text becomes a literal block.
    """
    if paragraph[0].startswith(">>>"):
        return paragraph
    if paragraph[0].startswith("- "):
        return _with_literals(paragraph)
    if all(line.startswith("  ") for line in paragraph):
        return ["::", "", *("  " + line for line in paragraph)]
    if not any(_ENTRY.fullmatch(line) for line in paragraph if not line.startswith(" ")):
        return _with_literals(paragraph)
    lines: list[str] = []
    listed = False
    for line in paragraph:
        entry = None if line.startswith(" ") else _ENTRY.fullmatch(line)
        if entry:
            lines += ["", f"**{entry[1]}**", f"    {entry[2]}"]
            listed = True
        elif listed:
            lines.append(f"    {line.strip()}")
        else:
            lines.append(line)
    return _with_literals(lines)


def _with_literals(lines: list[str]) -> list[str]:
    """Return lines whose code, in single backticks as in Markdown, is in double backticks."""
    text = "\n".join(lines)
    return _CODE.sub(lambda match: f"``{match[1]}``" + (f"\\ {match[2]}" if match[2] else ""), text).split("\n")


def _docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line for paragraph in _paragraphs(lines) for line in (*_as_rst(paragraph), "")]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _docstring)
