"""Files to rows, and rows back to files.

A table is a stream of rows that remember their place in the file, so that a file of any length fits
in constant memory and every complaint can say where. Every cell stays the text that it was.
"""

from .bundled import BUNDLED_TARGET as BUNDLED_TARGET
from .bundled import BUNDLED_UNIT as BUNDLED_UNIT
from .bundled import bundled_dataset as bundled_dataset
from .read import open_table as open_table
from .rows import Row as Row
from .rows import Table as Table
from .rows import free_name as free_name
from .rows import listed as listed
from .write import check_output as check_output
from .write import no_formula as no_formula
from .write import output_schema as output_schema
from .write import write_table as write_table
