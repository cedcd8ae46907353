"""The report: a Markdown document, the same as HTML, plots, and the data of each figure."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from bench.harness.figure import Figure
from bench.harness.flat import Flat, flat
from bench.harness.store import Record, Store, write_data
from bench.harness.told import all_rows, best_known, disturbed, draw_all, lines_of, stamps

POINTS, PLOTS, DATA = "points", "plots", "data"
"""Folders of a report: points as they were measured, which the rest is made from; drawings; tables."""
FIGURES = "figures.json"
"""Figures by name, for `eddy bench --compare`."""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .7rem; text-align: left; }
th { border-bottom: 2px solid #999; }
img { max-width: 100%; }
code { background: #f3f3f3; padding: 0 .2em; }
"""


def anchor(title: str) -> str:
    """Return the fragment by which a heading is linked, as GitHub makes it.

    >>> anchor("fig7: 5 to 100 joins, best case")
    'fig7-5-to-100-joins-best-case'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _heading(figure: Figure) -> str:
    return f"{figure.name}: {figure.title}"


def _front(found: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return what is true of all figures: machines, versions, sources, time taken."""
    every = [record for records in found.values() for record in records]
    lines = [
        "# Figures",
        "",
        "What is measured, beside what the papers showed, what a user would pick instead, and what the machine allows.",
        "Made by `eddy bench`; each figure by `eddy bench NAME` alone. Ways to do the same work are measured in turns,",
        "and their results counted and compared before any time is told. Medians; bands are the least and the most.",
        "",
    ]
    for stamp in stamps(every):
        own = [record for record in every if record.stamp == stamp]
        some = f", {len(disturbed(own))} of them beside other work," if disturbed(own) else ""
        minutes = sum(one.seconds for one in own) / 60
        lines.append(f"- {len(own)} points{some} in {minutes:.0f} minutes: {stamp.text()}")
    return [*lines, ""]


def document(chapters: Mapping[str, Sequence[Figure]], store: Store) -> str:
    """Return the report as Markdown. Figures of which nothing was measured are named as such."""
    found = {figure.name: best_known(figure, store) for figures in chapters.values() for figure in figures}
    lines = _front(found)
    for title, figures in chapters.items():
        lines += [f"- **{title}**"]
        lines += [f"  - [{_heading(figure)}](#{anchor(_heading(figure))})" for figure in figures]
    lines.append("")
    for title, figures in chapters.items():
        lines += [f"## {title}", ""]
        for figure in figures:
            lines += [f"### {_heading(figure)}", "", figure.about, ""]
            if figure.source:
                lines += [f"Source: {figure.source}.", ""]
            body = lines_of(figure, found[figure.name], PLOTS)
            if body:
                files = f"[{figure.name}.csv]({DATA}/{figure.name}.csv), [.parquet]({DATA}/{figure.name}.parquet)"
                lines += [*body, "", f"Data: {files}.", ""]
            else:
                lines += [f"Not measured yet: `eddy bench {figure.name}`.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _with_anchor(heading: re.Match[str]) -> str:
    level, content = heading.groups()
    plain = html.unescape(re.sub("<.*?>", "", content))
    return f'<{level} id="{anchor(plain)}">{content}</{level}>'


def page(markdown: str) -> str:
    """Return a document as one page of HTML, its headings with the anchors that links use."""
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    body = re.sub(r"<(h[23])>(.*?)</h[23]>", _with_anchor, body)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Figures of eddy</title>\n<style>{STYLE}</style>\n{body}</html>\n"
    )


def export(figure: Figure, records: Sequence[Record], folder: Path) -> None:
    """Write the plots and the data of a figure into the folder of a report, if anything was measured."""
    if records:
        draw_all(figure, records, folder / PLOTS)
        write_data(figure.name, all_rows(figure, records), folder / DATA)


def write(chapters: Mapping[str, Sequence[Figure]], folder: Path) -> Path:
    """Make the report of what is kept in a folder: `report.md`, which is returned, `index.html` and FIGURES."""
    store = Store(folder / POINTS)
    figures = [figure for own in chapters.values() for figure in own]
    found: Flat = {}
    for figure in figures:
        records = best_known(figure, store)
        export(figure, records, folder)
        found |= flat(figure.name, records)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIGURES).write_text(json.dumps(found, indent=1) + "\n")
    text = document(chapters, store)
    path = folder / "report.md"
    path.write_text(text)
    (folder / "index.html").write_text(page(text))
    return path
