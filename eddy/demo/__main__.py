"""`python -m eddy.demo`: the same as `eddy demo`."""

from __future__ import annotations

from eddy.demo.command import app

if __name__ == "__main__":
    app(prog_name="python -m eddy.demo")
