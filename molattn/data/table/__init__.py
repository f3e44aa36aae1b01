"""Files to rows, and rows back to files.

A table is a stream of rows with their line numbers, so that a file of any length is read in
constant memory and every error names its row. Cells keep their text unchanged. A format of your own
is one :class:`FileFormat` registered in :data:`FORMATS`.
"""

from molattn.data.table.base import Row as Row
from molattn.data.table.base import SMILESList as SMILESList
from molattn.data.table.base import Table as Table
from molattn.data.table.base import TableWriter as TableWriter
from molattn.data.table.base import escape_formula as escape_formula
from molattn.data.table.base import free_name as free_name
from molattn.data.table.base import listed as listed
from molattn.data.table.formats import BUNDLED_TARGET as BUNDLED_TARGET
from molattn.data.table.formats import BUNDLED_UNIT as BUNDLED_UNIT
from molattn.data.table.formats import FORMATS as FORMATS
from molattn.data.table.formats import FileFormat as FileFormat
from molattn.data.table.formats import bundled_dataset as bundled_dataset
from molattn.data.table.formats import format_by_suffix as format_by_suffix
from molattn.data.table.formats import open_table as open_table
from molattn.data.table.formats import output_format as output_format
from molattn.data.table.formats import output_schema as output_schema
from molattn.data.table.formats import output_stream as output_stream
from molattn.data.table.formats import write_table as write_table
from molattn.data.table.source import Source as Source
