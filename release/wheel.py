"""Build the wheel of this Python with compiled kernels, by `make wheel`: the first push of its users compiles nothing.

`build` unpacks the plain wheel of setuptools, compiles its kernels (`eddy.shipping`) and packs it again, with the tags
of this Python and of Linux on x86-64. No file in it is a shared library, so it depends on no version of glibc.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from eddy.shipping import ship

ROOT = Path(__file__).parents[1]
PLATFORM = "manylinux2014_x86_64"
SOURCES = ("stairs", "jisc", "eddy", "pyproject.toml", "README.md", "LICENSE")


def python(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def build(out: Path) -> Path:
    """Build the wheel in the folder `out` and return its path."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, plain, packed = Path(scratch, "copy"), Path(scratch, "plain"), Path(scratch, "packed")
        # setuptools leaves files next to the sources, and takes those of an earlier build into the wheel.
        copy.mkdir()
        for name in SOURCES:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy)
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
