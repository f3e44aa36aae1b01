"""What is written is whole, after an error, a full disk or a kill."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from molattn.errors import InputError
from molattn.utils.files import (
    atomic_folder,
    atomic_write,
    check_output_folder,
    locked,
    read_json,
    replace_folder,
    write_file,
    write_json,
)

HOLD = """
import pathlib, sys
from molattn.utils.files import {name}
with {name}(pathlib.Path(sys.argv[1])) as file:
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(b"previous")
    return path


def entries(folder):
    return sorted(entry.name for entry in folder.iterdir())


def held(name, path):
    """A process within the block of a function of a path."""
    program = [sys.executable, "-c", HOLD.format(name=name), path]
    other = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"ready\n"
    return other


def test_a_file_is_replaced_when_the_block_ends(path, tmp_path):
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
        assert path.read_bytes() == b"previous"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link").is_symlink()
    write_file(tmp_path / "other", b"")
    (tmp_path / "usual").touch()
    assert (tmp_path / "other").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert entries(tmp_path) == ["data.bin", "link", "other", "usual"]


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), OSError(28, "full")])
def test_an_error_leaves_the_previous_file_and_names_it(path, error):
    def write():
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    if isinstance(error, OSError):
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_bytes() == b"previous"
    assert entries(path.parent) == [path.name]


def test_a_killed_process_leaves_the_previous_file(path):
    with held("atomic_write", path) as other:
        other.kill()
    assert path.read_bytes() == b"previous"
    write_file(path, b"new")
    assert len([*path.parent.glob(".*.part")]) == 1


def test_json(path):
    write_json(path, {"a": [1.5, None]})
    assert read_json(path) == json.loads(path.read_bytes()) == {"a": [1.5, None]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": [1.5, None]}
    for content in (b"", b"[]", b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(InputError, match=str(path)):
            read_json(path)


def test_a_folder_is_replaced_when_the_block_ends(tmp_path, monkeypatch):
    path = tmp_path / "parent" / "folder"
    for text in ("1", "2"):
        with atomic_folder(path) as folder:
            (folder / text).write_text(text)
        assert (entries(path), entries(path.parent)) == ([text], ["folder"])
    path.chmod(0o700)
    monkeypatch.chdir(path)
    with atomic_folder(Path(".")) as folder:
        write_file(folder / "3", b"")
    assert (entries(path), path.stat().st_mode & 0o777) == (["3"], 0o700)


def test_an_error_leaves_the_previous_folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "previous").touch()

    def write():
        with atomic_folder(path) as folder:
            (folder / "half").touch()
            (folder / "absent" / "file").touch()

    with pytest.raises(FileNotFoundError):
        write()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", path)
    assert [*tmp_path.rglob("*")] == [path, path / "previous"]


@pytest.mark.parametrize(
    "names, markers, is_allowed",
    [("", "a", True), ("b", "", True), ("b", "a", False), ("ab", "a", True), ("abc", "a", False)],
)
def test_a_folder_with_anything_else_is_not_replaced(tmp_path, names, markers, is_allowed):
    for name in names:
        (tmp_path / name).touch()
    for path, allowed in ((tmp_path, is_allowed), (tmp_path / "new", True)):
        try:
            check_output_folder(path, "a run", "ab".__contains__, markers)
        except InputError:
            assert not allowed
        else:
            assert allowed
    if names:
        with pytest.raises(InputError):
            check_output_folder(tmp_path / names[0], "a run", "ab".__contains__)


def test_one_process_at_a_time_holds_a_lock(tmp_path):
    folder = tmp_path / "folder"
    with held("locked", folder) as other:
        with pytest.raises(InputError, match="another process"), locked(folder):
            pass
        other.kill()
    with locked(folder):
        folder.mkdir()
        folder.rename(tmp_path / "final")
    assert entries(tmp_path) == ["final"]
