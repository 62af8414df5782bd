"""The product table: item features by item id, for logs whose impressions carry only ids. Pure: no Beam.

A row is a JSON object with `item_id`, features by name and, optionally, `timestamp_ms`: when it was written. Tables
often hold numbers as text (CSV always does): text is parsed as a number where the task's feature is numeric.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from beam_jobs.sources.native_log import MAX_LINE_BYTES, RECORD_FAULTS, is_identifier, record_fault
from beam_jobs.sources.timestamps import BadTimestamp, read_timestamp
from features.spec import Feature, FeatureSpec
from features.values import describe_type


class ProductRow(NamedTuple):
    """One row. timestamp_ms: 0 where the row has none."""

    item_id: str
    timestamp_ms: int
    features: dict[str, Any]


class MalformedProduct(NamedTuple):
    reason: str
    detail: str


ProductTable = Mapping[str, ProductRow]


def read_product(line: bytes, spec: FeatureSpec) -> ProductRow | MalformedProduct:
    """Parses a product table line; keeps the columns that the spec has."""
    if len(line) >= MAX_LINE_BYTES:
        return MalformedProduct("product_too_long", f"expected less than {MAX_LINE_BYTES} bytes")
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return MalformedProduct("product_not_json", str(error))
    if not isinstance(row, dict):
        return MalformedProduct("product_not_an_object", f"is {describe_type(row)}, expected a JSON object")
    if fault := record_fault(row):
        return MalformedProduct(f"product_{fault}", RECORD_FAULTS[fault])
    item_id = row.pop("item_id", None)
    if not is_identifier(item_id):
        return MalformedProduct("product_item_id_missing", f"item_id is {describe_type(item_id)}, expected text")
    stamp = row.pop("timestamp_ms", None)
    timestamp_ms = 0 if stamp is None else read_timestamp(stamp)
    if isinstance(timestamp_ms, BadTimestamp):
        return MalformedProduct(f"product_{timestamp_ms.reason}", timestamp_ms.detail)
    known = spec.features
    return ProductRow(
        str(item_id), timestamp_ms, {name: _cell(known[name], raw) for name, raw in row.items() if name in known}
    )


def _cell(feature: Feature, raw: Any) -> Any:
    if isinstance(raw, str):
        return _number(raw) if feature.is_numeric else raw
    if isinstance(raw, dict) or (isinstance(raw, list) and any(isinstance(value, (list, dict)) for value in raw)):
        return {}  # not a valid value of any feature; drops its content
    return raw


def _number(text: str) -> Any:
    """Parses '3.5', 'TRUE' or '[0.1, 2]'; returns other text unchanged, so that the feature's own check refuses it."""
    try:
        return orjson.loads(text.lower())
    except orjson.JSONDecodeError:
        return text


def read_table(lines: Iterable[bytes], spec: FeatureSpec) -> dict[str, ProductRow]:
    """Parses product table lines; keeps the latest row of each item and skips malformed lines."""
    table: dict[str, ProductRow] = {}
    for line in lines:
        row = read_product(line, spec)
        if isinstance(row, ProductRow):
            known = table.setdefault(row.item_id, row)
            if known is not row:
                table[row.item_id] = latest_row((known, row))
    return table


def latest_row(rows: Iterable[ProductRow]) -> ProductRow:
    """Returns the latest of an item's rows; ties do not depend on the order of reading."""
    return max(rows, key=lambda row: (row.timestamp_ms, orjson.dumps(row.features, option=orjson.OPT_SORT_KEYS)))
