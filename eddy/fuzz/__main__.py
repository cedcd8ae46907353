"""`python -m eddy.fuzz`: the same as `eddy fuzz`."""

from __future__ import annotations

from eddy.fuzz.command import app

if __name__ == "__main__":
    app(prog_name="python -m eddy.fuzz")
