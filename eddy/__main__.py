"""`python -m eddy`: the command `eddy`, of this interpreter."""

from __future__ import annotations

from eddy.cli import app

app(prog_name="eddy")
