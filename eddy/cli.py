"""The command line: `eddy version`, and the commands registered as entry points of the group "eddy.commands".

Commands of packages above this one are entry points too, because imports go one way and nothing here may import them. A
command is loaded when it is called or listed. If that fails, the other commands still work.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

GROUP = "eddy.commands"
DISTRIBUTION = "eddy-join"
OURS = ("stairs", "jisc", "eddy", "bench")
EXTRAS = {"bench": "bench", "demo": "spark", "fuzz": "fuzz", "run": "spark"}
"""The extra that has the dependencies of each command."""
BENCH = EntryPoint("bench", "bench.cli:app", GROUP)
"""The benchmarks, which are in the repository and not in the wheel."""
SHIPPED = (EntryPoint("replay", "eddy.replay.command:app", GROUP), EntryPoint("top", "eddy.show.top:app", GROUP))
"""The commands of this package that need only the dependencies of this package."""
HOME = Path(__file__).resolve().parents[1]
"""The folder of this package: the repository in an editable installation, else site-packages."""
BENCH_MISSING = "the benchmarks are not in the wheel: clone the repository of eddy-join and run `make bench` there"


def registered() -> dict[str, EntryPoint]:
    """Return the entry points of commands by name."""
    return {entry.name: entry for entry in (BENCH, *SHIPPED, *entry_points(group=GROUP))}


class Commands(TyperGroup):
    """The commands of this module and those registered as entry points."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *sorted(registered())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, loaded if it is registered; None for an unknown name."""
        known = super().get_command(ctx, cmd_name)
        if known is not None or cmd_name not in registered():
            return known
        entry = registered()[cmd_name]
        if entry == BENCH and (HOME / "bench" / "cli.py").is_file() and str(HOME) not in sys.path:
            sys.path.append(str(HOME))  # An editable installation exposes only the packages of the wheel.
        try:
            command = get_command(entry.load())
        except ImportError as error:
            return _broken(entry, error)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command. If a package of an extra is missing, exit with a message instead of a traceback."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in OURS:
                raise
            typer.echo(f"eddy {ctx.invoked_subcommand}: {_missing(ctx.invoked_subcommand, error)}", err=True)
            raise typer.Exit(1) from None


def _missing(command: str, error: ModuleNotFoundError) -> str:
    extra = EXTRAS.get(command)
    remedy = f"; pip install '{DISTRIBUTION}[{extra}]'" if extra else ""
    return f"the package {error.name} is not installed{remedy}"


def _hidden(module: str) -> str | None:
    """Return the place of a foreign package that hides a package of this project, None if there is none."""
    top = module.partition(".")[0]
    spec = find_spec(top)
    if top not in OURS or spec is None:
        return None
    places = [str(Path(place).resolve()) for place in spec.submodule_search_locations or [spec.origin or ""]]
    return None if str(HOME / top) in places else places[0]


def _broken(entry: EntryPoint, error: ImportError) -> Any:
    """Return a command that prints why this one could not be loaded, and fails."""
    stand_in = typer.Typer(add_completion=False)
    reason = f"{entry.value} cannot be imported: {error}"
    other = _hidden(entry.module)
    if other is not None:
        reason = f"{other} hides the package of this command, which has the same name; run it in another directory"
    elif isinstance(error, ModuleNotFoundError) and entry == BENCH and error.name == BENCH.module.partition(".")[0]:
        reason = BENCH_MISSING
    elif isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in OURS:
        reason = _missing(entry.name, error)

    @stand_in.command(name=entry.name, help=f"(not available: {reason})")
    def fail() -> None:
        typer.echo(f"eddy {entry.name}: {reason}", err=True)
        raise typer.Exit(1)

    return get_command(stand_in)


app = typer.Typer(cls=Commands, add_completion=False, no_args_is_help=True)


def print_version(wanted: bool) -> None:
    """Print the version and exit, if asked for."""
    if wanted:
        typer.echo(f"eddy {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Multi-way joins over streams, with plans that adapt while they run."""


@app.command(name="version")
def show_version() -> None:
    """Print the version."""
    print_version(True)
