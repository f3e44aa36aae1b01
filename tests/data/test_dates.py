"""Columns of dates: which ways to write them are read, and which are refused."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from molattn.data.dates import read_dates, read_like
from molattn.data.labels import LabelError

DAYS = [datetime(2018, 5, 1) + timedelta(days=37 * n, hours=n % 3) for n in range(24)]


def written(form):
    return [day.strftime(form) for day in DAYS]


def without_leading_zero(cells):
    return [cell.removeprefix("0") for cell in cells]


@pytest.mark.parametrize(
    "form, name",
    [
        ("%Y-%m-%d", "YYYY-MM-DD"),
        ("%Y/%m/%d", "YYYY/MM/DD"),
        ("%Y.%m.%d", "YYYY.MM.DD"),
        ("%d.%m.%Y", "DD.MM.YYYY"),
        ("%d.%m.%y", "DD.MM.YY"),
        ("%d/%m/%Y", "DD/MM/YYYY"),
        ("%m/%d/%Y", "MM/DD/YYYY"),
        ("%d-%m-%Y", "DD-MM-YYYY"),
        ("%m/%d/%y", "MM/DD/YY"),
        ("%d-%b-%Y", "DD month YYYY"),
        ("%d %B %Y", "DD month YYYY"),
        ("%d%b%Y", "DD month YYYY"),
        ("%d-%b-%y", "DD month YY"),
        ("%B %d, %Y", "month DD YYYY"),
        ("%b %d %Y", "month DD YYYY"),
        ("%Y-%b-%d", "YYYY month DD"),
    ],
)
def test_days_are_read_as_they_were_written(form, name):
    days = [np.datetime64(day.date()) for day in DAYS]
    for cells in (written(form), without_leading_zero(written(form))):
        dates = read_dates(cells)
        assert dates.values.tolist() == np.array(days, dates.values.dtype).tolist()
        assert dates.describe() == f"{name} from {DAYS[0].date()} to {DAYS[-1].date()}"


@pytest.mark.parametrize("form", ["%Y-%m", "%Y/%m", "%m/%Y", "%m-%Y", "%b-%y", "%B %Y", "%Y %b"])
def test_a_month_is_its_first_day(form):
    days = [np.datetime64(day.date().replace(day=1)) for day in DAYS]
    for cells in (written(form), without_leading_zero(written(form))):
        dates = read_dates(cells).values
        assert dates.tolist() == np.array(days, dates.dtype).tolist()


@pytest.mark.parametrize(
    "form",
    [
        *("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S+00:00"),
        *("%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d-%b-%Y %H:%M"),
    ],
)
def test_times_are_read_also_where_some_are_left_out_at_midnight(form):
    cells = [
        day.strftime(form if day.hour else form.split("%H")[0].split("%I")[0].strip(" T"))
        for day in DAYS
    ]
    dates = read_dates(cells).values
    assert dates.tolist() == np.array(DAYS, dates.dtype).tolist()


def test_iso_dates_beside_dates_with_dots_are_read():
    dates = read_dates(["2018-12-07", "05.01.2022", "2018-12-07T10:00:00+02:00", "5.1.2022 7:15"])
    expected = ["2018-12-07", "2022-01-05", "2018-12-07T08:00", "2022-01-05T07:15"]
    assert dates.values.tolist() == np.array(expected, dates.values.dtype).tolist()


@pytest.mark.parametrize(
    "cells, words",
    [
        (["05/01/2022", "06/01/2022"], ["2022-01-05", "DD/MM/YYYY", "2022-05-01", "MM/DD/YYYY"]),
        (["05-01-2022", "06-01-2022"], ["2022-01-05", "DD-MM-YYYY", "2022-05-01", "MM-DD-YYYY"]),
        (["18/12/07", "19/05/31"], ["DD/MM/YY", "YY/MM/DD"]),
        (["12/19", "01/20"], ["MM/YY", "MM/DD"]),
        (["19-12", "20-01"], ["YY-MM", "DD-MM"]),
        (["19-Dec", "7-Jan"], ["DD month"]),
        (["12.2019", "1.2020"], ["MM.YYYY"]),
        (["12.202", "1.2021"], ["MM.YYYY"]),  # 12.2020 as a number
        (["11.1999", "12.2", "3.2001"], ["MM.YYYY"]),  # 12.2000 as a number
        (["12.18", "03.19", "01.20"], ["MM.YY"]),
        (["31.12", "05.01"], ["DD.MM"]),
        (["1219", "0120", "0519"], ["MMYY"]),
        (["122019", "012020", "052020"], ["MMYYYY"]),
        (["12019", "92018", "112020"], ["MMYYYY"]),  # 012019 as a number
        (["2019.12", "2020.01"], ["YYYY.MM"]),
        (["2019.1", "2019.11"], ["YYYY.MM"]),  # 2019.10 as a number
        (["2019.9", "2019.10", "2019.2"], ["YYYY.M"]),
        (["201912", "202001"], ["YYYYMM"]),
        (["7122018", "13012019"], ["DDMMYYYY"]),
        (["12072018", "1132019"], ["MMDDYYYY"]),
        (["71218", "130119"], ["DDMMYY"]),
        (["2018-12-07", "Dec-19"], ["Dec-19"]),
        (["2018-12-07", "2019-12"], ["2019-12"]),
        (["2018-12-07", "12/31/2019"], ["12/31/2019"]),
        (["31/12/2018", "12/31/2019"], ["12/31/2019"]),
        (["2018", "2019", "2019-12-07"], ["2019-12-07"]),
        (["2018-02-30", "2019-12-07"], ["2018-02-30"]),
        (["first", "second"], ["first"]),
    ],
)
def test_what_has_no_reading_or_several_is_refused(cells, words):
    with pytest.raises(LabelError) as error:
        read_dates(cells)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "numbers",
    [
        [2003, 2001.5, 1999],
        [43101, 43466.25, 44000],  # days of a spreadsheet
        [40544, 40999, 41274],
        [1544140800, 1577836800],
        [12.2019, 13.2019],
        [201912, 201999],
        [20181207, 20190131],  # in the order of the days
        [-1, 0, 1e3],
        [12.18, 3.19, 1.25],
        [2019.5, 2019.9],
        [1219, 120, 519],
    ],
)
def test_numbers_are_numbers_unless_all_would_be_dates(numbers):
    dates = read_dates([*map(str, numbers), "", "n.d."])
    assert dates.format == "numbers"
    np.testing.assert_array_equal(dates.values, [*numbers, np.nan, np.nan])


def test_cells_without_a_digit_have_no_date():
    dates = read_dates(["7-Dec-2018", "", "NA", "unknown", "today", " 1-May-2019 "])
    assert dates.is_missing.tolist() == [False, True, True, True, True, False]


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%b-%y", "%Y"])
def test_a_word_for_the_present_is_no_date(form):
    assert read_dates([*written(form), "today", "now"]).is_missing.sum() == 2


def test_a_column_like_another_has_no_date_where_its_format_does_not_fit():
    dates = read_like(["2018-12-07", "07.12.2018", "12/07/2018", "", "2018"], "YYYY-MM-DD")
    assert dates.is_missing.tolist() == [False, False, True, True, True]
    with pytest.raises(LabelError):
        read_like(["12/07/2018", "12/31/2018"], "DD/MM/YYYY")
