"""A list that is partly in a temporary file is a list."""

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
def test_it_reads_as_a_list_does(items, most, place, part):
    spooled = spool(most, items)
    assert (len(spooled), list(spooled)) == (len(items), items)
    assert spooled[part] == items[part]
    if -len(items) <= place < len(items):
        assert spooled[place] == items[place]
    else:
        with pytest.raises(IndexError):
            spooled[place]


@given(ITEMS, ITEMS, st.integers(0, 10))
def test_items_are_appended_after_reading(first, second, most):
    spooled = spool(most, first)
    assert list(spooled) == first
    for item in second:
        spooled.append(item)
        assert spooled[-1] == item
    assert list(spooled) == first + second


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


@given(ITEMS, ITEMS, st.integers(0, 10))
def test_a_pickled_list_is_a_list_of_its_own(first, second, most):
    spooled = spool(most, first)
    other = pickle.loads(pickle.dumps(Selection(spooled, range(len(first)))))
    assert list(other) == first
    copied = pickle.loads(pickle.dumps(spooled))
    for item in second:
        copied.append(item)
        spooled.append("other")
    assert list(copied) == first + second


def test_shared_parts_of_a_pickled_list_are_shared():
    one, other = [1], [2]
    spooled = spool(0, [(one, 1), (other, 2), (one, 3)], shared=list)
    copied = pickle.loads(pickle.dumps(spooled))
    copied.append((copied[0][0], 4))
    copied.append(([3], 5))
    assert list(copied) == [([1], 1), ([2], 2), ([1], 3), ([1], 4), ([3], 5)]
    assert copied[0][0] is copied[2][0] is copied[3][0] is not one


@given(st.lists(st.integers(0, 9), max_size=20), st.slices(20))
def test_a_selection_looks_items_up(places, part):
    items = [str(number) for number in range(10)]
    selection = Selection(items, places)
    assert list(selection) == [items[place] for place in places]
    assert list(selection[part]) == [items[place] for place in places[part]]
    assert len(selection) == len(places)
    if places:
        assert selection[-1] == items[places[-1]]
