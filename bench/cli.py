"""`eddy bench`: the benchmarks, registered as an entry point of the command line of `eddy`.

Nothing that measures is imported before a benchmark is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from bench.contents import CHAPTERS, TITLES, load

app = typer.Typer(
    add_completion=False, help="Benchmarks: one figure by its name; without a name all of them, as one report."
)

OUT, POINTS = Path("bench") / "report", Path("build") / "bench"

Json = Annotated[str | None, typer.Option("--json", metavar="-|FILE", help="Write the figures as one JSON object.")]
Full = Annotated[bool, typer.Option("--full", help="The sizes of the papers, which take hours; otherwise minutes.")]
Again = Annotated[bool, typer.Option("--again", help="Repeat points that were measured with the same sources.")]
Out = Annotated[Path, typer.Option("--out", help="The folder of the report.")]
Points = Annotated[Path, typer.Option("--points", help="The folder of measured points; a stopped run resumes from it.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="This figure; may be repeated.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="COLUMN=VALUE", help="Only points with this value, such as joins=20."),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option("--compare", metavar="A B", help="Measure nothing: show what changed between two files of --json."),
]
Install = Annotated[
    list[str] | None,
    typer.Option("--install", metavar="flink|pathway", help="Measure nothing: install this peer in its environment."),
]
Smallest = Annotated[
    bool, typer.Option("--smallest", help="See only that each figure can be measured; nothing is kept.")
]
Strict = Annotated[bool, typer.Option("--strict", help="With --compare: fail if a figure is worse beyond the noise.")]


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    full: Full = False,
    again: Again = False,
    out: Out = OUT,
    points: Points = POINTS,
    only: Only = None,
    where: Where = None,
    json_to: Json = None,
    compare: Compare = None,
    strict: Strict = False,
    smallest: Smallest = False,
) -> None:
    """Measure every figure, quickly unless --full, and write the report: a page, its plots, a file of figures."""
    if context.invoked_subcommand is not None:
        return
    if compare is not None:
        _compare(*compare, strict)
        return
    import bench.harness.report  # noqa: F401  # a missing package is reported before anything is measured

    if smallest:
        if full or again or json_to:
            raise typer.BadParameter("--smallest keeps nothing: it goes with --only and --where alone")
        _check_figures(only or list(TITLES), where or ())
        return
    failed = _measure(only or list(TITLES), full, again, points, where or (), json_to)
    report(out, points)
    if failed:
        Console(stderr=True).print(f"{failed} points failed; the same command measures them again")
        raise typer.Exit(1)


@app.command()
def report(out: Out = OUT, points: Points = POINTS) -> None:
    """Write the report from the measured points and from the figures of the earlier report."""
    from bench.harness.report import write
    from bench.harness.store import Store

    chapters = {chapter.title: load(tuple(chapter.figures)) for chapter in CHAPTERS}
    Console(stderr=True).print(f"report: {write(chapters, Store(points), out)}", soft_wrap=True)


@app.command()
def peers(
    full: Full = False,
    again: Again = False,
    points: Points = POINTS,
    where: Where = None,
    json_to: Json = None,
    install: Install = None,
) -> None:
    """W1 in other engines: Spark, Flink, Pathway, Polars, DuckDB, plain Python, loops in numba and C."""
    if install:
        from bench.peers.environment import install as make

        for name in install:
            make(name, typer.echo)
        return
    _figures_of("peers", full, again, points, where or (), json_to)


def _figure_command(name: str) -> None:
    def command(
        full: Full = False, again: Again = False, points: Points = POINTS, where: Where = None, json_to: Json = None
    ) -> None:
        _figures_of(name, full, again, points, where or (), json_to)

    app.command(name, help=f"{TITLES[name]}.")(command)


for _name in TITLES:
    if _name != "peers":
        _figure_command(_name)


def _figures_of(name: str, full: bool, again: bool, points: Path, where: Sequence[str], json_to: str | None) -> None:
    """Measure one figure and print its tables."""
    from rich.markdown import Markdown

    from bench.harness.report import body
    from bench.harness.store import Store

    if _measure([name], full, again, points, where, json_to):
        raise typer.Exit(1)
    if json_to != "-":
        (figure,) = load([name])
        records = Store(points).of_points(name, figure.points(full))
        text = [f"# {figure.title}", "", figure.about, "", *(body(figure, records, points) if records else [])]
        Console().print(Markdown("\n".join(text)))


def _measure(
    names: Sequence[str], full: bool, again: bool, points: Path, where: Sequence[str], json_to: str | None
) -> int:
    """Measure figures into a folder of points; return how many points failed."""
    from bench.harness.run import measure
    from bench.harness.store import Store, figures_text

    store = Store(points)
    figures = load(names)
    failures = measure(figures, store, full=full, again=again, console=Console(stderr=True), where=where)
    if json_to is not None:
        known = {figure.name: (figure, store.of_points(figure.name, figure.points(full))) for figure in figures}
        text = figures_text({name: pair for name, pair in known.items() if pair[1]})
        if json_to == "-":
            typer.echo(text, nl=False)
        else:
            Path(json_to).parent.mkdir(parents=True, exist_ok=True)
            Path(json_to).write_text(text)
    return len(failures)


def _check_figures(names: Sequence[str], where: Sequence[str]) -> None:
    """Measure figures in their smallest sizes, and keep nothing. Raises Exit if a point fails."""
    from bench.harness.run import measure
    from bench.harness.store import Store
    from bench.smallest import with_smallest_points

    with TemporaryDirectory() as folder:
        figures, console = [with_smallest_points(figure) for figure in load(names)], Console(stderr=True)
        failures = measure(figures, Store(Path(folder)), full=False, again=True, console=console, where=where)
    if failures:
        console.print(f"{len(failures)} points failed")
        raise typer.Exit(1)


def _compare(before: Path, after: Path, strict: bool) -> None:
    from bench.compare import WORSE, compare, read, show

    verdicts = compare(read(before), read(after))
    show(verdicts, Console())
    if strict and any(compared.verdict == WORSE for compared in verdicts):
        raise typer.Exit(1)
