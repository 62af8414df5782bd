"""Files whose records are no lines of JSON, as such lines: Parquet, CSV, and TFRecord of SearchEvent. Pure: no Beam."""

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

from beam_jobs.logs import MAX_LINE_BYTES
from beam_jobs.tfrecords import read_records
from protos.search_log_pb2 import SearchEvent

ROWS = 1024  # of a Parquet file that are held at a time


def read_parquet(file: BinaryIO) -> Iterator[bytes]:
    """Rows as objects by column. Times become milliseconds since 1970, decimals numbers. Errors: pyarrow's, OSError."""
    for batch in ParquetFile(file).iter_batches(batch_size=ROWS):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield orjson.dumps(row, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return str(value)


def read_csv(file: BinaryIO) -> Iterator[bytes]:
    """Rows as objects by the header's names; empty cells are left out.

    A cell is text, and a reader that wants something else reads the text (beam_jobs/products.py). A row with more or
    fewer cells than the header comes as a list. Errors: ValueError where the file is no CSV.
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
    start = b"\xef\xbb\xbf"  # the mark that some spreadsheets put before UTF-8
    while line := file.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise ValueError(f"a line has {MAX_LINE_BYTES} bytes or more: is it CSV?")
        yield line.removeprefix(start).decode("utf-8", "replace")
        start = b""


def read_search_events(file: BinaryIO) -> Iterator[bytes]:
    """Records of protos/search_log.proto in the JSON form of native logs. Errors: ValueError, damaged framing."""
    for record in read_records(file):
        event: Any
        try:
            event = MessageToDict(SearchEvent.FromString(record), preserving_proto_field_name=True)
        except (DecodeError, NoJsonError):  # the latter: a number in `features` that is not finite
            event = f"a record of {len(record)} bytes that is no SearchEvent"
        yield orjson.dumps(event)
