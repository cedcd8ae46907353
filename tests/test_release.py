"""A release: its version, its changelog, and the formats that its upgrade notes name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import eddy
from eddy.queries.snapshot import KIND as ENGINE
from eddy.spark.streaming.inputs import file_log, offsets
from eddy.spark.streaming.state import identity, manifest, segments
from eddy.spark.streaming.state.remote import BUNDLE
from eddy.spark.streaming.worker.operator_files import GROUPS
from eddy.storage import file_kind
from release.sources import copy_sources
from tests.documents import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
"""The version of this library: the newest release, or the next one while it is not released."""


def test_the_version_is_the_same_everywhere() -> None:
    assert eddy.__version__ == VERSION


def test_the_changelog_has_a_section_for_each_release() -> None:
    """Unreleased changes come first, then releases with dates, newest first."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    assert all(released), headings
    numbers = [tuple(map(int, match.groups()[:3])) for match in released if match]
    assert numbers == sorted(set(numbers), reverse=True)
    dates = [match[4] for match in released if match]
    assert dates == sorted(dates, reverse=True)
    assert all(number <= tuple(map(int, VERSION.split("."))) for number in numbers)


def test_the_upgrade_notes_name_the_formats_of_this_version() -> None:
    formats = [
        identity.VERSION, manifest.KIND.version, BUNDLE.version, segments.VERSION, file_log._KIND.version,
        offsets._KIND.version, GROUPS.version, file_kind.SNAPSHOT.version, ENGINE.version,
    ]  # fmt: skip
    notes = (ROOT / "docs/guide/production.md").read_text().partition("## Upgrades")[2]
    row = "| " + " | ".join(map(str, [VERSION, *formats])) + " |"
    assert row in notes, f"the table of formats lacks the row {row}"


def test_the_page_on_formats_names_each_magic_with_its_version() -> None:
    kinds = [file_log._KIND, offsets._KIND, GROUPS, file_kind.SNAPSHOT, ENGINE, manifest.KIND, BUNDLE]
    page = (ROOT / "docs/internals/snapshot_format.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (`eddy[^|]+) \| ([\d, ]+) \| ", page, re.MULTILINE)
    named = [(magics.split(", "), map(int, versions.split(", "))) for magics, versions in rows]
    table = {
        magic.strip("`"): version for magics, versions in named for magic, version in zip(magics, versions, strict=True)
    }
    assert table == {kind.magic.decode(): kind.version for kind in kinds}
    assert f"format version, now {file_kind.SNAPSHOT.version}" in page


def test_a_type_checker_finds_an_editable_install(tmp_path: Path) -> None:
    """It reads paths in the files of site-packages, and runs no code that stands there."""
    copy = tmp_path / "copy"
    copy_sources(copy)
    code = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=copy, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".pth")]
        assert wheel.read(name).decode().split() == [str(copy)]
    assert (copy / "eddy" / "py.typed").exists()
