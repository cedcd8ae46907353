"""Build the wheel of this Python with compiled kernels, by `make wheel`: the first push of its users compiles nothing.

`build` unpacks the plain wheel of setuptools, compiles its kernels (`eddy.shipping`) and packs it again, with the tags
of this Python and of Linux on x86-64. No file in it is a shared library, so it depends on no version of glibc.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from eddy.shipping import ship
from release.sources import ROOT, copy_sources, python

PLATFORM = "manylinux2014_x86_64"


def build(out: Path) -> Path:
    """Build the wheel in the folder `out` and return its path."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, plain, packed = Path(scratch, "copy"), Path(scratch, "plain"), Path(scratch, "packed")
        copy_sources(copy)
        python("pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "-w", plain, copy)
        (wheel,) = plain.iterdir()
        python("wheel", "unpack", wheel, "-d", plain)
        (tree,) = (path for path in plain.iterdir() if path.is_dir())
        ship(tree)
        packed.mkdir()
        python("wheel", "pack", tree, "-d", packed)
        (wheel,) = packed.iterdir()
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        python("wheel", "tags", "--remove", "--python-tag", tag, "--abi-tag", tag, "--platform-tag", PLATFORM, wheel)
        (wheel,) = packed.iterdir()
        out.mkdir(exist_ok=True)
        return Path(shutil.copy(wheel, out))


if __name__ == "__main__":
    print(build(ROOT / "dist"))
