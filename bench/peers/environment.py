"""Peers that cannot live beside this package, each in an environment of its own.

They pin versions of Arrow and NumPy that are older than ours. An environment is made when it is asked for and never
otherwise: by `eddy bench peers --install NAME`, in `$XDG_CACHE_HOME/eddy/peers`, else `~/.cache/eddy/peers`, with the
Python that runs this. It counts as installed once a file says that pip was done with it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.harness.figure import Say
from eddy import EddyError

PACKAGES = {"flink": ("apache-flink==2.3.0",), "pathway": ("pathway==0.33.0",)}
"""What pip is to install, in the versions that were tried."""
SCRIPTS = Path(__file__).parent / "scripts"
INSTALL_SECONDS = 1800
_DONE = "installed"
_TOLD = 300  # characters of an error that are passed on


class Unavailable(EddyError):
    """A peer cannot be measured here; the message says why, and what would help."""


def folder(name: str) -> Path:
    """Return where the environment of a peer is, or would be. One for each version of Python."""
    user = os.environ.get("XDG_CACHE_HOME")
    root = Path(user) if user else Path.home() / ".cache"
    return root / "eddy" / "peers" / f"{name}-py{sys.version_info[0]}{sys.version_info[1]}"


def python_of(name: str) -> Path:
    """Return the Python of an environment. Raises Unavailable if it is not installed."""
    place = folder(name)
    done = place / _DONE
    if not done.is_file() or done.read_text().split() != list(PACKAGES[name]):
        raise Unavailable(f"{name}: not installed (eddy bench peers --install {name})")
    return place / "bin" / "python"


def install(name: str, say: Say = print) -> Path:
    """Make the environment of a peer anew and return its folder; minutes, and one to two GB on disk.

    Raises EddyError with what pip said if it fails; nothing is left then.
    """
    if name not in PACKAGES:
        raise EddyError(f"there is no peer {name!r} to install; there are {', '.join(PACKAGES)}")
    place = folder(name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, mode=0o700)
    say(f"installing {' '.join(PACKAGES[name])} in {place}")
    try:
        venv.create(place, with_pip=True, symlinks=True)
        command = [str(place / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", *PACKAGES[name]]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        (place / _DONE).write_text("\n".join(PACKAGES[name]))
    except BaseException as failed:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(failed, subprocess.CalledProcessError):
            raise EddyError(f"{name} could not be installed: {_last(failed.stderr or failed.stdout or '')}") from failed
        if isinstance(failed, OSError | subprocess.TimeoutExpired):
            raise EddyError(f"{name} could not be installed: {failed}") from failed
        raise
    return place


def _last(text: str) -> str:
    """Return the last line that says something: of a Python that failed, its exception."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    return lines[-1][:_TOLD] if lines else "it said nothing"


def answers(
    name: str,
    python: Path,
    script: Path,
    arguments: Sequence[str],
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, object]]:
    """Run a script and return the objects that it printed, one JSON line each.

    The script and what it started are ended after `timeout` seconds. Raises Unavailable if that happens, if it fails,
    and if it prints nothing.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    process = subprocess.Popen(
        [str(python), "-I", str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **(variables or {})},
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"{name}: not done after {timeout:g} s") from late
    finally:
        _end(process)
    if process.returncode:
        raise Unavailable(f"{name}: failed with status {process.returncode}: {_last(errors)}")
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if not found:
        raise Unavailable(f"{name}: printed no figures: {_last(errors)}")
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and all it started, which are its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
