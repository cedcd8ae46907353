"""Environments of peers that pin older versions of Arrow and NumPy than this package needs.

`eddy bench peers --install NAME` makes one, in `$XDG_CACHE_HOME/eddy/peers`, else `~/.cache/eddy/peers`, with the
Python that runs the command. An environment counts as installed when a file in it states that pip has finished.
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
"""Packages that pip installs, in the versions that were tested."""
SCRIPTS = Path(__file__).parent / "scripts"
INSTALL_SECONDS = 1800
_DONE = "installed"
_LENGTH = 300  # characters of an error that are passed on


class Unavailable(EddyError):
    """A peer cannot be measured here; the message gives the reason and a remedy."""


def folder(name: str) -> Path:
    """Return the place of the environment of a peer, one for each version of Python."""
    user = os.environ.get("XDG_CACHE_HOME")
    root = Path(user) if user else Path.home() / ".cache"
    return root / "eddy" / "peers" / f"{name}-py{sys.version_info[0]}{sys.version_info[1]}"


def python_of(name: str) -> Path:
    """Return the Python of an environment. Raises Unavailable if the environment is not installed."""
    place = folder(name)
    done = place / _DONE
    if not done.is_file() or done.read_text().split() != list(PACKAGES[name]):
        raise Unavailable(f"{name}: not installed (eddy bench peers --install {name})")
    return place / "bin" / "python"


def install(name: str, say: Say = print) -> Path:
    """Make the environment of a peer and return its folder; takes minutes, and one to two GB on disk.

    Raises EddyError with the message of pip if pip fails, and then leaves no files.
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
    """Return the last line that is neither empty nor indented, which is the exception of a failed Python."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    return lines[-1][:_LENGTH] if lines else "no message"


def answers(
    name: str,
    python: Path,
    script: str,
    arguments: Sequence[str],
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> list[dict[str, object]]:
    """Run a script of SCRIPTS and return the objects that it printed, one line of JSON each.

    The script and its child processes are ended after `timeout` seconds. Raises Unavailable for such a timeout, for a
    script that fails, and for a script without output.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    process = subprocess.Popen(
        [str(python), "-I", str(SCRIPTS / script), *arguments],
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
    printed = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if not printed:
        raise Unavailable(f"{name}: printed no figures: {_last(errors)}")
    return printed


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and its children, which form its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
