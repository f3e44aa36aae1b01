import json
import os
import re
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
import torch

from molattn.errors import InputError, os_error_line
from molattn.training.checkpoint import CHECKPOINT_FILE, write_checkpoint
from molattn.training.run_folder import CONFIG_FILE, RESULT_FILE, run_folder
from molattn.utils.files import (
    atomic_folder,
    atomic_write,
    check_output_folder,
    replace_folder,
    write_file,
    write_json,
)

from ..faulty_files import ERRORS, FaultyFiles


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(b"previous")
    return path


def assert_unchanged(path):
    assert path.read_bytes() == b"previous"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_is_replaced_when_the_block_ends(path):
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"previous"
    assert path.read_bytes() == b"new"
    write_file(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_file_behind_a_link_is_replaced(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    write_file(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


def test_a_file_has_the_permissions_of_any_new_file(path, tmp_path):
    write_file(path, b"new")
    (tmp_path / "other").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_is_replaced_keeps_its_mode(path, tmp_path):
    path.chmod(0o640)
    write_file(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    folder = tmp_path / "folder"
    folder.mkdir(0o700)
    with atomic_folder(folder) as part:
        write_file(part / "file", b"new")
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_stream_leaves_the_previous_file(path, error):
    def write():
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert_unchanged(path)


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
def test_a_failed_write_leaves_the_previous_file(path, call, monkeypatch):
    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(call, fail)
    with pytest.raises(OSError, match="no space"):
        write_file(path, b"new")
    assert_unchanged(path)


def test_the_content_is_on_disk_before_the_file_is_replaced(path, monkeypatch):
    seen = []

    def fsync(descriptor, original=os.fsync):
        seen.append((os.fstat(descriptor).st_size, path.read_bytes()))
        original(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    write_file(path, b"new")
    assert seen == [(3, b"previous")]


def test_json_that_no_other_reader_takes_is_not_written(path):
    write_json(path, {"a": [1.5, None]})
    assert json.loads(path.read_bytes()) == {"a": [1.5, None]}
    path.write_bytes(b"previous")
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert_unchanged(path)


def test_what_a_killed_process_leaves_is_removed_with_its_run(tmp_path):
    code = (
        "import os, pathlib, sys\n"
        "from molattn.utils.files import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half')\n"
        "    os._exit(9)\n"
    )
    path = tmp_path / "run"
    folder = tmp_path / "run.unfinished"
    folder.mkdir()
    (folder / CONFIG_FILE).write_text("")
    (folder / CHECKPOINT_FILE).write_text("")
    subprocess.run([sys.executable, "-c", code, folder / CHECKPOINT_FILE], check=False)
    assert len([*folder.glob("*.part")]) == 1
    with run_folder(path, resume=True) as folder:
        (folder / RESULT_FILE).write_text("{}")
    assert {entry.name for entry in path.iterdir()} == {CONFIG_FILE, RESULT_FILE}


def test_a_folder_is_replaced_when_the_block_ends(tmp_path):
    path = tmp_path / "parent" / "folder"
    for text in ("1", "2"):
        with atomic_folder(path) as folder:
            (folder / text).write_text(text)
        assert [entry.name for entry in path.iterdir()] == [text]
        assert [entry.name for entry in path.parent.iterdir()] == ["folder"]


def test_an_interrupted_folder_leaves_the_previous_one(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "previous").touch()

    def write():
        with atomic_folder(path) as folder:
            (folder / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", path)
    assert [*tmp_path.rglob("*")] == [path, path / "previous"]


def test_a_folder_with_anything_else_is_not_replaced(tmp_path):
    check_output_folder(tmp_path / "new", "a run", "ab".__contains__, "a")
    check_output_folder(tmp_path, "a run", "ab".__contains__, "a")
    (tmp_path / "b").touch()
    check_output_folder(tmp_path, "a run", "ab".__contains__)
    with pytest.raises(InputError, match="contains 'b', which is not part of a run"):
        check_output_folder(tmp_path, "a run", "ab".__contains__, "a")
    (tmp_path / "a").touch()
    check_output_folder(tmp_path, "a run", "ab".__contains__, "a")
    (tmp_path / "c").touch()
    with pytest.raises(InputError, match="contains 'c', which is not part of a run"):
        check_output_folder(tmp_path, "a run", "ab".__contains__, "a")
    with pytest.raises(InputError, match="is a file or a link"):
        check_output_folder(tmp_path / "a", "a run", "ab".__contains__)


def test_the_working_folder_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    check_output_folder(Path("."), "a run", "a".__contains__)
    with atomic_folder(Path(".")) as folder:
        (folder / "a").touch()
    assert (tmp_path / "out" / "a").is_file()


def write_run(path, what):
    with run_folder(path / "run", overwrite=True) as folder:
        for name in (CONFIG_FILE, CHECKPOINT_FILE, RESULT_FILE):
            write_file(folder / name, what * 10_000)


def write_folder(path, what):
    with atomic_folder(path / "folder") as folder:
        (folder / "file").write_bytes(what * 10_000)


WRITERS = {
    "file": lambda path, what: write_file(path / "file", what * 10_000),
    "checkpoint": lambda path, what: write_checkpoint(
        path / "file", {"a": torch.full((10_000,), what[0])}
    ),
    "folder": write_folder,
    "run": write_run,
}


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_call_fails_the_path_is_named_and_the_former_or_new_content_whole(
    tmp_path, writer, lasting
):
    write = WRITERS[writer]
    (tmp_path / "former").mkdir()
    write(tmp_path / "former", b"old")
    shutil.copytree(tmp_path / "former", tmp_path / "latter")
    write(tmp_path / "latter", b"new")
    new = contents(tmp_path / "latter")
    seen = set()
    for number in count():
        place = tmp_path / str(number)
        shutil.copytree(tmp_path / "former", place)
        before = contents(place)
        faulty = FaultyFiles(place, number, ERRORS[number % len(ERRORS)], lasting=lasting)
        failure = None
        with faulty.active():
            try:
                write(place, b"new")
            except (OSError, InputError) as error:
                failure = error
        if faulty.failed is None:
            assert failure is None
            break
        seen.add(faulty.failed)
        if isinstance(failure, OSError):
            assert str(place) in os_error_line(failure)
            assert ".part" not in os_error_line(failure)
            assert failure.errno == faulty.error
        elif failure is not None:
            assert str(place) in str(failure)
            assert os.strerror(faulty.error) in str(failure)
        if faulty.failed not in ("unlink", "rmdir", "scandir") and not lasting:
            assert not [*place.rglob("*.part")]
        after = contents(place)
        assert {**after, **before} == after or {**after, **new} == after, faulty.failed
        write(place, b"new")  # once the cause is gone
        assert contents(place) == new
    assert {"write", "open", "fsync", "replace"} <= seen or writer == "folder"


def contents(folder):
    """Return the content of files other than the temporary and those of unfinished runs."""
    return {
        re.sub(r"\.(\w+)\.former", r"\1", str(path.relative_to(folder))): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".part" not in str(path) and ".unfinished" not in str(path)
    }


def test_a_file_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_kept(path):
    code = (
        "import os, pathlib, signal, sys\n"
        "from molattn.utils.files import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half')\n"
        "    print('writing', flush=True)\n"
        "    signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"writing\n"
        write_file(path, b"new")
        assert len([*path.parent.glob(".*.part")]) == 1
        other.kill()
    write_file(path, b"newer")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_files_of_other_programs_are_kept(path):
    others = [path.with_name(f".{path.name}.{middle}.part") for middle in ("1", "movie.0123abcd")]
    for other in others:
        other.touch()
    abandoned = path.with_name(f".{path.name}.0123abcd.part")
    abandoned.touch()
    write_file(path, b"new")
    assert all(other.exists() for other in others)
    assert not abandoned.exists()


def test_a_temporary_file_that_another_writer_removed_is_made_again(path, monkeypatch):
    real, removed = os.open, []

    def removed_once(name, *arguments):
        if str(name).endswith(".part") and not removed:
            removed.append(name)
            os.unlink(name)
        return real(name, *arguments)

    monkeypatch.setattr(os, "open", removed_once)
    write_file(path, b"new")
    assert removed
    assert path.read_bytes() == b"new"


def test_a_folder_that_cannot_be_listed_is_written(path, monkeypatch):
    def refused(folder):
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(os, "listdir", refused)
    write_file(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_name_as_long_as_the_file_system_allows_is_written(tmp_path):
    write_file(tmp_path / ("é" * 127), b"1")
    with pytest.raises(OSError, match="too long"):
        write_file(tmp_path / ("é" * 128), b"1")
    assert len([*tmp_path.iterdir()]) == 1
