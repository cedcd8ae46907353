"""The script `eddy`: it starts the command line (`eddy.cli`), whose packages are an extra that joins do not need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or print the extra that it needs."""
    try:
        from eddy.cli import app

        app(prog_name="eddy")
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"eddy: the package {error.name} is not installed; pip install 'eddy-join[cli]'")
