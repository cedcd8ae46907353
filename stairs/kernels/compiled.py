"""The directory of compiled kernels, and the kernels that a wheel ships.

numba's `cache=True` checks only the file of a function, and misses an edit of a kernel in another file. So the name of
the directory is a digest of all sources of the package, of numba and of the processor: any edit starts a new directory.
Its parent is `$EDDY_CACHE_DIR`, or `eddy` under `$XDG_CACHE_HOME` or `~/.cache`, or under the temporary directory if
none of them is writable. Neither the path of the sources nor their time counts, so installations of the same sources
share it.

A wheel contains kernels that were compiled for a common processor (`SHIPPED`, written by `release/wheel.py`). A new
directory starts with a copy of them if they belong to these sources, this Python and this numba, and the processor has
all features that they need; then nothing is compiled. Kernels for exactly this processor can be faster, so
`EDDY_SHIPPED=0` ignores those in the wheel.

numba loads the files of the directory as code. So a directory that belongs to another user, or that others may write
to, is skipped with a warning (`stairs.storage.private`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import llvmlite.binding
import numba
from numba.core import config

from stairs.errors import InputError
from stairs.storage.private import private_directory

LOG = logging.getLogger("eddy.kernels")

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "compiled"
"""Kernels that came with the package, and `MADE`; absent in a checkout."""
MADE = "made.json"
OFF = "EDDY_SHIPPED"


def made(package: Path = PACKAGE) -> dict[str, str]:
    """Return what the kernels of a package depend on, apart from the processor: its sources, numba and Python."""
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(source.read_bytes())
    return {"sources": digest.hexdigest(), "numba": numba.__version__, "python": sys.implementation.cache_tag}


def processor() -> tuple[str, frozenset[str]]:
    """Return the name and the features of the processor for which numba compiles."""
    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    if config.CPU_FEATURES is not None:
        return name, frozenset(feature[1:] for feature in config.CPU_FEATURES.split(",") if feature.startswith("+"))
    return name, frozenset(feature for feature, has in llvmlite.binding.get_host_cpu_features().items() if has)


def _usable(directory: Path) -> bool:
    """Create a directory if it is missing, and return whether this user alone can write to it."""
    try:
        return os.access(private_directory(directory), os.W_OK | os.X_OK)
    except OSError:
        return False
    except InputError as refused:
        LOG.warning("compiled kernels are stored elsewhere: %s", refused)
        return False


def _copy_shipped(directory: Path, needed: dict[str, str], features: frozenset[str]) -> None:
    """Copy the shipped kernels to an empty directory if they fit; if not, or if that fails, kernels are compiled."""
    try:
        if os.environ.get(OFF) == "0" or not SHIPPED.is_dir() or any(directory.iterdir()):
            return
        shipped = json.loads((SHIPPED / MADE).read_text())
        lacking = frozenset(shipped.pop("features")) - features
        if shipped != needed or lacking:
            LOG.info("the shipped kernels do not fit: made with %s, this is %s; lacking %s", shipped, needed, lacking)
            return
        # An index is read before its data files; so it comes last, under its name only when it is complete.
        for path in sorted(SHIPPED.iterdir(), key=lambda path: path.suffix == ".nbi"):
            copied = directory / f"{path.name}.{os.getpid()}"
            shutil.copyfile(path, copied)
            copied.rename(directory / path.name)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        LOG.warning("the shipped kernels cannot be used, so kernels are compiled: %s", error)


@cache
def cache_directory() -> Path:
    """Return the directory that holds the compiled kernels of exactly these sources for this processor.

    Created on the first call; later calls return the same path.
    """
    needed, (name, features) = made(), processor()
    digest = hashlib.sha256(json.dumps([needed, name, sorted(features)]).encode()).hexdigest()[:16]
    named = os.environ.get("EDDY_CACHE_DIR")
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    candidates = [Path(named)] if named else []
    candidates += [Path(user) / "eddy", Path(tempfile.gettempdir()) / f"eddy-{os.getuid()}"]
    directories = (candidate / digest for candidate in candidates)
    directory = next(filter(_usable, directories), None) or Path(tempfile.mkdtemp(prefix="eddy-"))
    if named and directory.parent != Path(named):
        LOG.warning("EDDY_CACHE_DIR=%s cannot be used: compiled kernels are stored in %s", named, directory)
    _copy_shipped(directory, needed, features)
    return directory
