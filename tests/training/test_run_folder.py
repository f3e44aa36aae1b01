import os

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


def fill(path, text="1", error=None, member=None, **options):
    """Write a run, up to an error."""
    with run_folder(path, **options) as folder:
        (folder / CONFIG_FILE).write_text(text)
        own = folder if member is None else folder / member
        own.mkdir(exist_ok=True)
        (own / CHECKPOINT_FILE).write_text(text)
        if error is not None:
            raise error
        (folder / RESULT_FILE).write_text(text)


def interrupt(path, error=KeyboardInterrupt, **options):
    with pytest.raises(error):
        fill(path, "new", error, **options)


def test_a_run_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "run"
    interrupt(path, MolattnError)
    assert names(tmp_path) == []
    fill(path)
    assert names(path.parent) == ["run"]
    assert names(path) == [CONFIG_FILE, RESULT_FILE]
    with pytest.raises(InputError, match="overwrite"):
        fill(path, "2")
    with pytest.raises(ZeroDivisionError), run_folder(path, overwrite=True) as folder:
        (folder / CONFIG_FILE).write_text(str(1 / 0))
    assert (path / CONFIG_FILE).read_text() == "1"
    fill(path, "2", overwrite=True)
    assert (path / CONFIG_FILE).read_text() == "2"
    assert names(path.parent) == ["run"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("member", [None, "member_2"])
def test_an_interrupted_run_stays_until_it_is_resumed_or_overwritten(tmp_path, error, member):
    path = tmp_path / "run"
    fill(path, "former")
    interrupt(path, error, overwrite=True, member=member)
    unfinished = tmp_path / "run.unfinished"
    assert (path / CONFIG_FILE).read_text() == "former"
    assert has_checkpoint(path)
    for name in (path, unfinished, f"{path}{os.sep}"):
        assert unfinished_run(name) == unfinished
    for one in (InputError, MolattnError, RuntimeError):
        with pytest.raises(one), run_folder(path, resume=True):
            raise one
    with pytest.raises(InputError, match="resume"):
        fill(path)
    with run_folder(unfinished, resume=True) as folder:
        (folder / RESULT_FILE).write_text("new")
        (folder / ".history.csv.0a1b2c3d.part").write_text("of a killed process")
    assert names(tmp_path) == ["run"]
    assert {*names(path)} - {"member_2"} == {CONFIG_FILE, RESULT_FILE}
    assert unfinished_run(path) is None
    assert not has_checkpoint(path)
    interrupt(path, overwrite=True)
    fill(path, "anew", overwrite=True)
    assert (path / CONFIG_FILE).read_text() == "anew"


def test_a_run_killed_before_its_first_checkpoint_is_no_obstacle(tmp_path):
    unfinished = tmp_path / "run.unfinished"
    (unfinished / "model").mkdir(parents=True)
    (unfinished / CONFIG_FILE).write_text("killed")
    fill(tmp_path / "run", "2")
    assert not (tmp_path / "run" / "model").exists()


def test_a_folder_that_is_being_filled_is_refused(tmp_path):
    path = tmp_path / "run"
    with run_folder(path) as folder:
        (folder / CONFIG_FILE).write_text("theirs")
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError):
                fill(path, **options)
        assert (folder / CONFIG_FILE).read_text() == "theirs"


def test_a_missing_run_is_reported_with_the_closest_name(tmp_path):
    interrupt(tmp_path / "lipo")
    with pytest.raises(InputError, match="did you mean"):
        unfinished_run(tmp_path / "lipp")
    with pytest.raises(InputError, match="no unfinished run"):
        unfinished_run(tmp_path / "nowhere" / "quite_other")
    assert free_folder(tmp_path / "lipo") == tmp_path / "lipo-2"
    fill(tmp_path / "lipo-2")
    assert free_folder(tmp_path / "lipo") == tmp_path / "lipo-3"


@pytest.mark.parametrize("files", [["thesis.tex"], ["config.yaml", "notes.txt"], ["parity.png"]])
@pytest.mark.parametrize("name", ["run", "run.unfinished"])
def test_a_folder_of_other_files_is_not_touched(tmp_path, name, files):
    folder = tmp_path / name
    folder.mkdir()
    for file in files:
        (folder / file).write_text("mine")
    with pytest.raises(InputError):
        fill(tmp_path / "run", overwrite=True)
    assert names(folder) == sorted(files)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / "link"):
        with pytest.raises(InputError):
            fill(path)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_current_folder_can_be_a_run(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    interrupt(".")
    assert unfinished_run(".") == tmp_path / "here.unfinished"
