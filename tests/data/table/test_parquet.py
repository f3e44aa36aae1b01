import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from molattn.data.table import open_table
from molattn.errors import InputError

from ...conftest import assert_one_line


def saved(tmp_path, columns, name="t.parquet", **options):
    path = tmp_path / name
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_cells_are_texts_that_mean_the_values(tmp_path):
    path = saved(
        tmp_path,
        {
            "smiles": ["C", None],
            "n": [1, None],
            "x": [0.1, float("nan")],
            "whole": [3.0, -2.0],
            "single": pa.array([0.1, 2.5], pa.float32()),
            "yes": [True, None],
            "raw": [b"C", b"\xff"],
        },
    )
    table = open_table(path)
    assert table.header == ["smiles", "n", "x", "whole", "single", "yes", "raw"]
    rows = list(table)
    assert [row.line for row in rows] == [1, 2]
    assert rows[0].cells == ["C", "1", "0.1", "3", "0.1", "True", "C"]
    assert rows[1].cells == ["", "", "nan", "-2", "2.5", "", "\udcff"]
    assert rows[0].values[:2] == ("C", 1)
    assert table.where(2) == "row 2"


def test_a_damaged_file_is_refused(tmp_path):
    path = saved(tmp_path, {"smiles": ["C" * n for n in range(200)]})
    content = path.read_bytes()
    for name, damaged in {
        "cut.parquet": content[:-20],
        "pages.parquet": content[:4] + b"\xff" * 300 + content[304:],
        "text.parquet": b"smiles\nC\n",
        "empty.parquet": b"",
    }.items():
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(InputError, match=name):
            list(open_table(tmp_path / name))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, -1_000_000], pa.int32()).cast(pa.date32()),
        pa.array([0, 10**18], pa.int64()).cast(pa.timestamp("us")),
        pa.array([b"C", b"\xff"]).view(pa.string()),
    ],
)
def test_a_value_that_python_does_not_have_is_an_error(tmp_path, values):
    path = saved(tmp_path, {"smiles": ["C", "CC"], "odd": values})
    with pytest.raises(InputError) as error:
        list(open_table(path))
    assert str(path) in str(error.value)
    assert_one_line(error.value)
