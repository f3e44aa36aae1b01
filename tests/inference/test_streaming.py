import io
from collections import Counter

import pytest
from rich.console import Console

from molattn.utils.console import print_errors


@pytest.mark.parametrize(
    "errors, told",
    [
        ({}, ""),
        ({"name": 1, "empty": 3}, "errors: 3 empty, 1 name\n"),
        (
            {"name": 2, "empty": 3, "syntax": 1, "valence": 2, "ring_closure": 1},
            "errors: 3 empty, 2 name, 2 valence, 2 for other reasons\n",
        ),
    ],
)
def test_the_commonest_reasons_are_told_and_the_others_counted(errors, told):
    written = io.StringIO()
    print_errors(Counter(errors), Console(file=written, width=80))
    assert written.getvalue() == told
