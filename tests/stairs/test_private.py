"""Directories and files that another user could have created or changed are refused."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from stairs.errors import InputError
from stairs.kernels import compiled
from stairs.storage.private import open_private, private_directory

STRANGER = 4242


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the owner of a path to another user; without root rights, change the user of this process instead."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def test_missing_directories_are_made_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_directory(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (made, made.parent, made.parent.parent)] == [0o700] * 3
    assert private_directory(made) == made


def test_directories_that_others_can_change_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (0o720, 0o702, 0o777, 0o1777):
        (tmp_path / "open").mkdir(exist_ok=True)
        (tmp_path / "open").chmod(mode)
        with pytest.raises(InputError, match=rf"has mode {mode:04o}, so other users .* chmod 700"):
            private_directory(tmp_path / "open")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="where other users can replace it"):
        private_directory(tmp_path / "open" / "own")
    (tmp_path / "open").chmod(0o1777)
    directory = private_directory(tmp_path / "open" / "own")
    (tmp_path / "link").symlink_to(directory)
    with pytest.raises(InputError, match="link is no directory"):
        private_directory(tmp_path / "link")
    give_away(directory, monkeypatch)
    with pytest.raises(InputError, match="own belongs to user"):
        private_directory(directory)


def test_only_regular_files_of_this_user_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    os.close(open_private(path, os.O_RDWR | os.O_CREAT))
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    for link in ("link", "nowhere"):
        with pytest.raises(InputError, match="is a link"):
            open_private(tmp_path / link, os.O_RDWR | os.O_CREAT)
    assert not (tmp_path / "missing").exists()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no regular file"):
        open_private(tmp_path / "pipe", os.O_RDWR)
    with pytest.raises(FileNotFoundError):
        open_private(tmp_path / "other", os.O_RDWR)
    path.chmod(0o622)
    with pytest.raises(InputError, match="has mode 0622"):
        open_private(path, os.O_RDWR)
    path.chmod(0o600)
    give_away(path, monkeypatch)
    with pytest.raises(InputError, match="another user may have written it"):
        open_private(path, os.O_RDWR)


def test_compiled_kernels_are_not_read_where_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """numba loads the files of its cache as code."""
    caplog.set_level(logging.WARNING, "eddy.kernels")
    monkeypatch.setenv("EDDY_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    find = compiled.cache_directory.__wrapped__
    named = find()
    assert (named.parent, named.stat().st_mode & 0o777) == (tmp_path / "named", 0o700)
    named.chmod(0o777)
    usual = find()
    assert usual.parent == tmp_path / "usual" / "eddy"
    assert f"{named} has mode 0777" in caplog.text
    named.chmod(0o700)
    assert find() == named
    give_away(named, monkeypatch)
    assert find() != named
    assert f"{named} belongs to user" in caplog.text
