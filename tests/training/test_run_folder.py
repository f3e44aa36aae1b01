import os
import signal
import subprocess
import sys

import pytest

from molattn.errors import InputError, MolattnError
from molattn.training.checkpoint import CHECKPOINT_FILE
from molattn.training.run_folder import (
    CONFIG_FILE,
    RESULT_FILE,
    free_folder,
    has_checkpoint,
    run_folder,
    unfinished_run,
)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def finish(path, text="1", **options):
    with run_folder(path, **options) as folder:
        (folder / CONFIG_FILE).write_text(text)
        (folder / CHECKPOINT_FILE).write_text(text)
        (folder / RESULT_FILE).write_text(text)


def interrupt(path, error=KeyboardInterrupt, **options):
    """Leave an unfinished run with a checkpoint."""

    def run():
        with run_folder(path, **options) as folder:
            (folder / CONFIG_FILE).write_text("new")
            (folder / CHECKPOINT_FILE).write_text("new")
            raise error

    with pytest.raises(error):
        run()


def test_a_run_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "run"
    with pytest.raises(ZeroDivisionError), run_folder(path) as folder:
        (folder / CONFIG_FILE).write_text(str(1 / 0))
    assert names(tmp_path) == []
    with run_folder(path) as folder:
        (folder / CONFIG_FILE).write_text("1")
        assert folder == tmp_path / "new" / "run.unfinished"
        assert not path.exists()
    assert names(path.parent) == ["run"]
    assert names(path) == [CONFIG_FILE]


def test_a_former_run_is_replaced_only_by_a_whole_one(tmp_path):
    path = tmp_path / "run"
    finish(path, "1")
    with pytest.raises(ZeroDivisionError), run_folder(path, overwrite=True) as folder:
        (folder / CONFIG_FILE).write_text(str(1 / 0))
    assert (path / CONFIG_FILE).read_text() == "1"
    with pytest.raises(
        InputError, match=r"run: contains a finished run; use overwrite to replace it"
    ):
        finish(path, "2")
    assert (path / CONFIG_FILE).read_text() == "1"
    assert names(tmp_path) == ["run"]
    finish(path, "2", overwrite=True)
    assert (path / CONFIG_FILE).read_text() == "2"
    assert names(path) == [CONFIG_FILE, RESULT_FILE]
    assert names(tmp_path) == ["run"]


def test_a_run_of_members_is_kept_for_any_ones_checkpoint_and_ends_without_it(tmp_path):
    path = tmp_path / "run"

    def fill(path, error=None, **options):
        with run_folder(path, **options) as folder:
            (folder / CONFIG_FILE).write_text("1")
            (folder / "member_1").mkdir(exist_ok=True)
            (folder / "member_1" / CHECKPOINT_FILE).write_text("1")
            (folder / "member_1" / "history.csv").write_text("1")
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        fill(path, KeyboardInterrupt)
    assert has_checkpoint(path)
    with pytest.raises(InputError, match="contains an unfinished run"):
        fill(path)
    fill(path, resume=True)
    assert names(path) == [CONFIG_FILE, "member_1"]
    assert names(path / "member_1") == ["history.csv"]
    fill(path, overwrite=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
def test_an_interrupted_run_stays_and_is_finished_under_its_name(tmp_path, error):
    path = tmp_path / "run"
    finish(path, "former")
    interrupt(path, error, overwrite=True)
    assert names(tmp_path) == ["run", "run.unfinished"]
    assert (path / CONFIG_FILE).read_text() == "former"
    assert has_checkpoint(path)
    for name in (path, tmp_path / "run.unfinished", f"{path}{os.sep}"):
        assert unfinished_run(name) == tmp_path / "run.unfinished"
    with run_folder(tmp_path / "run.unfinished", resume=True) as folder:
        assert (folder / CHECKPOINT_FILE).read_text() == "new"
        (folder / RESULT_FILE).write_text("new")
    assert names(tmp_path) == ["run"]
    assert names(path) == [CONFIG_FILE, RESULT_FILE]
    assert (path / CONFIG_FILE).read_text() == "new"
    assert unfinished_run(path) is None
    assert not has_checkpoint(path)


def test_a_run_that_the_user_has_to_mend_leaves_nothing(tmp_path):
    interrupt(tmp_path / "run", MolattnError)
    assert names(tmp_path) == []


def test_a_resumed_run_outlives_every_error(tmp_path):
    path = tmp_path / "run"
    interrupt(path)
    for error in (InputError, MolattnError, KeyboardInterrupt, RuntimeError):
        with pytest.raises(error), run_folder(path, resume=True):
            raise error
    assert (tmp_path / "run.unfinished" / CHECKPOINT_FILE).read_text() == "new"


def test_an_unfinished_run_is_overwritten_only_on_demand(tmp_path):
    path = tmp_path / "run"
    interrupt(path)
    with (
        pytest.raises(InputError, match=r"resume .*run continues.*overwrite"),
        run_folder(path),
    ):
        raise AssertionError("not reached")
    assert (tmp_path / "run.unfinished" / CHECKPOINT_FILE).read_text() == "new"
    with run_folder(path, overwrite=True) as folder:
        assert names(folder) == []
        (folder / CONFIG_FILE).write_text("anew")
    assert names(path) == [CONFIG_FILE]


def test_files_that_a_killed_process_was_writing_are_no_obstacle(tmp_path):
    path = tmp_path / "run"
    interrupt(path)
    (tmp_path / "run.unfinished" / ".molattn-0.part").write_text("half")
    with run_folder(path, resume=True) as folder:
        (folder / RESULT_FILE).write_text("1")
    assert names(path) == [CONFIG_FILE, RESULT_FILE]


def test_a_run_killed_before_its_first_checkpoint_is_no_obstacle(tmp_path):
    path = tmp_path / "run"
    partial = tmp_path / "run.unfinished"
    partial.mkdir()
    (partial / CONFIG_FILE).write_text("killed")
    (partial / "tensorboard").mkdir()
    assert unfinished_run(path) == partial
    finish(path, "2")
    assert (path / CONFIG_FILE).read_text() == "2"
    assert not (path / "tensorboard").exists()


def test_a_folder_that_another_process_fills_is_refused(tmp_path):
    program = (
        "import sys, time; from molattn.training.run_folder import run_folder\n"
        "with run_folder(sys.argv[1]) as folder:\n"
        "    (folder / 'config.yaml').write_text('theirs'); print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    path = tmp_path / "run"
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError, match="another process"), run_folder(path, **options):
                raise AssertionError("not reached")
        assert (tmp_path / "run.unfinished" / CONFIG_FILE).read_text() == "theirs"
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    finish(path, "ours")  # the lock ended with its process
    assert (path / CONFIG_FILE).read_text() == "ours"


def test_what_is_no_run_is_told_with_the_nearest(tmp_path):
    interrupt(tmp_path / "lipo")
    with pytest.raises(
        InputError, match=r"resume .*lipp: no unfinished run; did you mean .*lipo\?"
    ):
        unfinished_run(tmp_path / "lipp")
    (tmp_path / "folder" / "alone.unfinished").mkdir(parents=True)
    with pytest.raises(InputError, match=r"alone: no unfinished run .no folder"):
        unfinished_run(tmp_path / "folder" / "alone")
    with pytest.raises(InputError, match=r"no folder .*quite_other\.unfinished"):
        unfinished_run(tmp_path / "nowhere" / "quite_other")


def test_a_free_folder_is_the_first_without_a_run(tmp_path):
    path = tmp_path / "run"
    assert free_folder(path) == path
    interrupt(path)
    assert free_folder(path) == tmp_path / "run-2"
    finish(tmp_path / "run-2")
    assert free_folder(path) == tmp_path / "run-3"


@pytest.mark.parametrize("files", [["thesis.tex"], ["config.yaml", "notes.txt"], ["parity.png"]])
@pytest.mark.parametrize("name", ["run", "run.unfinished"])
def test_a_folder_of_anything_else_is_left_alone(tmp_path, name, files):
    folder = tmp_path / name
    folder.mkdir()
    for file in files:
        (folder / file).write_text("mine")
    with (
        pytest.raises(InputError, match="expected a new or empty folder"),
        run_folder(tmp_path / "run", overwrite=True),
    ):
        raise AssertionError("not reached")
    assert names(folder) == sorted(files)


def test_a_place_that_cannot_hold_a_folder_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (file, file / "run", tmp_path / "link"):
        with pytest.raises(InputError), run_folder(path):
            raise AssertionError("not reached")
    assert file.read_text() == "mine"


def test_the_current_folder_has_a_name_too(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    interrupt(".")
    assert names(tmp_path) == ["here", "here.unfinished"]
    assert unfinished_run(".") == tmp_path / "here.unfinished"


def test_a_full_standard_output_is_not_taken_for_the_folder(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught, run_folder(tmp_path / "run"):
        raise OSError(28, "No space left on device")
    assert caught.value.filename is None
