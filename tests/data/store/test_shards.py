"""Arrays of variable length against what was stored."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from molattn.data.store.shards import (
    join_arrays,
    map_arrays,
    ragged_rows,
    read_texts,
    text_arrays,
    write_arrays,
)

TEXTS = st.lists(st.text(max_size=5), max_size=6)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.data())
def test_texts_are_read_as_they_were(parts, data):
    arrays = join_arrays([text_arrays("word", part) for part in parts])
    texts = [text for part in parts for text in part]
    first = data.draw(st.integers(0, len(texts)))
    last = data.draw(st.integers(first, len(texts)))
    assert read_texts(arrays, "word", first, last) == texts[first:last]
    values, lengths = ragged_rows(arrays, "word", first, last)
    content = "".join(texts[first:last]).encode()
    assert values.tobytes() == content
    assert lengths.tolist() == [len(text.encode()) for text in texts[first:last]]


def test_bytes_that_are_not_utf_8_are_kept():
    text = b"caf\xe9".decode(errors="surrogateescape")
    assert read_texts(join_arrays([text_arrays("word", [text])]), "word", 0, 1) == [text]


def test_arrays_are_mapped_as_they_were_written(tmp_path):
    path = tmp_path / "shard"
    arrays = {
        "bytes": np.arange(3, dtype=np.uint8),
        "halves": np.array([[0.5, np.nan]], dtype=np.float16),
        "none": np.zeros((0, 2), dtype=np.uint16),
        "words": np.arange(6, dtype=np.uint32).reshape(3, 2)[:, ::-1],
        "long": np.array([2**60], dtype=np.uint64),
    }
    write_arrays(path, arrays)
    once = path.read_bytes()
    write_arrays(path, dict(reversed(arrays.items())))
    assert path.read_bytes() == once
    mapped = map_arrays(path)
    assert mapped.keys() == arrays.keys()
    for name, values in arrays.items():
        assert mapped[name].dtype == values.dtype
        np.testing.assert_array_equal(mapped[name], values)
        assert not mapped[name].flags.writeable
