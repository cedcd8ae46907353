"""`python -m eddy`: the command `eddy`, run by this interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# `python -m` looks in the current directory first, where a folder `bench` would hide the package of that name.
if not sys.flags.safe_path and sys.path[0] == os.getcwd() != str(Path(__file__).parents[1]):
    del sys.path[0]

from eddy.script import main

main()
