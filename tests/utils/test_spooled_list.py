import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from molattn.utils.spooled_list import Selection, SpooledList


def spool(most, items, **options):
    spooled = SpooledList(most, **options)
    for item in items:
        spooled.append(item)
    return spooled


ITEMS = st.lists(st.one_of(st.text(), st.integers(), st.lists(st.integers())), max_size=30)


@given(ITEMS, st.integers(0, 30), st.integers(-35, 35), st.slices(30))
def test_it_reads_as_a_list_does(items, most, index, part):
    spooled = spool(most, items)
    assert (len(spooled), list(spooled)) == (len(items), items)
    assert spooled[part] == items[part]
    if -len(items) <= index < len(items):
        assert spooled[index] == items[index]
    else:
        with pytest.raises(IndexError):
            spooled[index]
    spooled.append("more")
    assert spooled[-1] == "more"


class Part:
    """An object that cannot be pickled."""

    def __reduce__(self):
        raise pickle.PicklingError


def test_shared_parts_are_the_same_objects():
    one, other = Part(), Part()
    spooled = spool(1, [[one, 1], [other, 2], [one, 3]], shared=Part)
    assert [parts[0] for parts in spooled] == [one, other, one]
    array = np.arange(3)
    spooled = spool(0, [array], shared=np.ndarray)  # an item itself is not shared
    assert spooled[0] is not array
    np.testing.assert_array_equal(spooled[0], array)


@given(st.lists(st.integers(0, 9), max_size=20), st.slices(20))
def test_a_selection_looks_items_up(indices, part):
    items = [str(number) for number in range(10)]
    selection = Selection(items, indices)
    assert list(selection) == [items[index] for index in indices]
    assert list(selection[part]) == [items[index] for index in indices[part]]
    assert len(selection) == len(indices)
