"""Adapters that read Parquet, CSV and TFRecord rows as JSON lines. Pure: no Beam."""

import csv
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

import orjson
from google.protobuf.json_format import Error as NoJsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

from beam_jobs.sources.native_log import MAX_LINE_BYTES, UNREADABLE_RECORD
from beam_jobs.storage.tfrecords import read_records
from protos.search_log_pb2 import SearchEvent

_ROWS_PER_BATCH = 1024  # of a Parquet file, in memory at a time


def read_parquet(file: BinaryIO) -> Iterator[bytes]:
    """Yields rows as objects by column. Times become milliseconds since 1970, decimals become numbers.

    A row with text that is not UTF-8 becomes an UNREADABLE_RECORD. Errors: pyarrow's, OSError.
    """
    for batch in ParquetFile(file).iter_batches(batch_size=_ROWS_PER_BATCH):
        try:
            rows = batch.to_pylist(maps_as_pydicts="lossy")
        except UnicodeDecodeError:
            rows = [_row(batch.slice(place, 1)) for place in range(batch.num_rows)]
        for row in rows:
            yield orjson.dumps(row, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS)


def _row(batch: Any) -> dict[str, Any]:
    """Converts the only row of a batch."""
    try:
        (row,) = batch.to_pylist(maps_as_pydicts="lossy")
    except UnicodeDecodeError:
        return {UNREADABLE_RECORD: "row_not_utf8"}
    return dict(row)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return str(value)


def read_csv(file: BinaryIO) -> Iterator[bytes]:
    """Yields rows as objects by the header's names, without empty cells.

    Cells are text; readers parse it (beam_jobs/sources/products.py). A row with more or fewer cells than the header
    becomes a list. Errors: ValueError when the file is not CSV.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    try:
        rows = csv.reader(_decoded_lines(file))
        header = next(rows, [])
        for row in rows:
            if len(row) == len(header):
                yield orjson.dumps({name: cell for name, cell in zip(header, row, strict=True) if cell})
            elif row:
                yield orjson.dumps(row)
    except csv.Error as error:
        raise ValueError(f"no CSV: {error}") from None


def _decoded_lines(file: BinaryIO) -> Iterator[str]:
    start = b"\xef\xbb\xbf"  # UTF-8 byte order mark, which some spreadsheets write
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise ValueError(f"a line has {MAX_LINE_BYTES} bytes or more: is it CSV?")
        yield line.removeprefix(start).decode("utf-8", "replace")
        start = b""


def read_search_events(file: BinaryIO) -> Iterator[bytes]:
    """Yields SearchEvent records as native JSON lines. Errors: ValueError for damaged framing."""
    for record in read_records(file):
        event: Any
        try:
            event = MessageToDict(SearchEvent.FromString(record), preserving_proto_field_name=True)
        except (DecodeError, NoJsonError):  # the latter: a number in `features` that is not finite
            event = {UNREADABLE_RECORD: "not_a_search_event"}
        yield orjson.dumps(event)
