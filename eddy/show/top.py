"""`eddy top`: the figures of a served engine or join in the terminal.

The command reads `/figures` of a page (`eddy.serve`, or `serve` of a running join on Spark). The command needs only
the address of the page and no other access to the process, so the command works through an SSH tunnel as the page does.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eddy.show.drawing import printable
from eddy.show.labels import short
from eddy.show.server import PORT
from eddy.show.text import bytes_text
from stairs.errors import InputError

SECONDS = 5.0
"""Time to wait for an answer."""
GAP, LONGEST = 2, 40
"""Columns of a terminal between two columns of a table, and maximal width of a cell; longer cells are folded."""
MOST_BYTES = 1 << 24
"""Maximal bytes of an answer that are read; a longer answer is from no page of eddy."""

app = typer.Typer(add_completion=False)


def figures_url(given: str) -> str:
    """Return the address of the figures of a page. Raises InputError if the text is no address of a page.

    >>> figures_url("localhost:9108"), figures_url("9108"), figures_url("http://host:1/")
    ('http://localhost:9108/figures', 'http://127.0.0.1:9108/figures', 'http://host:1/figures')
    """
    text = f"127.0.0.1:{given}" if given.isdecimal() else given
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/", "/figures"):
        raise InputError(f"eddy top: {given!r} is no address of a page; pass its port, host:port, or http://host:port/")
    return f"{parts.scheme}://{parts.netloc}/figures"


def figures(url: str) -> dict[str, Any]:
    """Return the figures at an address. Raises InputError if nothing serves them there."""
    try:
        with urlopen(Request(url, headers={"Accept": "application/json"}), timeout=SECONDS) as answer:
            sheet = json.loads(answer.read(MOST_BYTES))
        if not isinstance(sheet, dict) or not {"title", "name", "at", "figures", "plans", "tables"} <= sheet.keys():
            raise ValueError("the answer has no figures")
    except HTTPError as problem:
        said = problem.read(500).decode(errors="replace").strip()
        raise InputError(f"eddy top: {url} answers {problem.code}: {said}") from problem
    except (OSError, URLError, ValueError) as problem:
        raise InputError(
            f"eddy top: there are no figures at {url}: {problem}; start a page with eddy.serve(engine), or"
            " running.serve() on Spark"
        ) from problem
    return sheet


def view(sheet: Mapping[str, Any], width: int) -> RenderableType:
    """Return the text for a terminal of this width: figures without labels as a grid, the plans, the tables."""
    age = time.time() - float(sheet["at"])
    head = _text(f"{sheet['title']} {sheet['name']}", "bold")
    head.append(f"   figures of {time.strftime('%H:%M:%S', time.localtime(sheet['at']))}")
    if age > 5:
        head.append(f", {age:.0f} s ago", "red")
    grid = Table.grid(padding=(0, 3))
    cells = [cell for figure in sheet["figures"] if (cell := _figure(figure)) is not None]
    widest = max((line.cell_len for cell in cells for line in cell.split()), default=1)
    beside = max(1, min(4, (width + 3) // (widest + 3)))
    for row in range(0, len(cells), beside):
        grid.add_row(*cells[row : row + beside])
    parts: list[RenderableType] = [head, grid]
    parts += [_text(f"plan {plan['plan']}{'   ' + plan['title'] if plan['title'] else ''}") for plan in sheet["plans"]]
    return Group(*parts, *(table for page_table in sheet["tables"] for table in _table(page_table, width)))


def _text(value: object, style: str = "") -> Text:
    """Return a text without control characters, which a terminal would execute."""
    return Text(printable(str(value)), style)


def _figure(figure: Mapping[str, Any]) -> Text | None:
    value, unit = figure["value"], figure["unit"]
    if value is None or unit == "time":
        return None
    if figure["shown"] is not None:
        shown = str(figure["shown"])
    elif unit == "bytes":
        shown = bytes_text(int(value))
    elif unit == "seconds":
        shown = f"{1e3 * value:,.1f} ms" if value < 1 else f"{value:,.1f} s"
    else:
        shown = f"{value:,.0f}{' ns' if unit == 'ns' else ''}"
    cell = _text(figure["text"], "dim")
    cell.append(f"\n{printable(shown)}", "bold")
    if figure["rate"] is not None:
        cell.append(f"  {short(round(figure['rate'], 1))}/s", "cyan")
    return cell


def _table(page_table: Mapping[str, Any], width: int) -> Iterator[Table]:
    """Yield the lines of a table; columns beyond the terminal's width follow below, beside the names of the rows."""
    rows = page_table["rows"]
    used = [k for k in range(len(page_table["columns"])) if any(row[k] not in (None, "") for row in rows)]
    numbers = {k for k in used if all(row[k] is None or isinstance(row[k], int | float) for row in rows)}
    cells = {k: [_cell(row[k], str(page_table["columns"][k])) for row in rows] for k in used}
    heads = {k: _text(page_table["columns"][k]) for k in used}
    wide = {k: GAP + max(heads[k].cell_len, min(LONGEST, max(cell.cell_len for cell in cells[k]))) for k in used}
    names = list(takewhile(lambda k: k not in numbers, used[:2]))
    while sum(wide[k] for k in names) > width // 2:
        names.pop()
    shown: list[list[int]] = [[*names]]
    for k in used[len(names) :]:
        if sum(wide[other] for other in shown[-1]) + wide[k] > width and len(shown[-1]) > len(names):
            shown.append([*names])
        shown[-1].append(k)
    for part, columns in enumerate(shown):
        title = _text(page_table["title"]) if part == 0 else None
        table = Table(title=title, title_justify="left", box=None, header_style="dim", padding=(0, GAP, 0, 0))
        for k in columns:
            # Headers are never folded; long cells are folded.
            least = min(heads[k].cell_len, width - GAP)
            table.add_column(heads[k], justify="right" if k in numbers else "left", overflow="fold", min_width=least)
        for row in range(len(rows)):
            table.add_row(*(cells[k][row] for k in columns))
        yield table


def _cell(value: object, column: str) -> Text:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _text(bytes_text(int(value)) if column.endswith("bytes") else f"{value:,}")
    return _text("" if value is None else value)


@app.command()
def top(
    address: Annotated[str, typer.Argument(help="Port, host:port or URL of the page.")] = str(PORT),
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the figures once and exit.")] = False,
) -> None:
    """Show the figures of a served engine or join (`eddy.serve`, `running.serve()`) until q is pressed."""
    console = Console()
    try:
        url = figures_url(address)
        if once:
            console.print(view(figures(url), console.width))
            return
        with Live(view(figures(url), console.width), console=console, screen=True, auto_refresh=False) as live, _keys():
            while not _asked_to_quit(every):
                live.update(view(figures(url), console.width), refresh=True)
    except InputError as problem:
        typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        return


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one and without echo, if the input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _asked_to_quit(seconds: float) -> bool:
    """Wait for this time, or until q is pressed; return whether q was pressed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return True
    return False
