"""The product table: item features by item id, for logs whose impressions carry only ids. Pure: no Beam.

A row is a JSON object with `item_id`, any features by name and, optionally, `timestamp_ms`: when it was written.
Tables often hold numbers as text (CSV holds nothing else): where the task has a number, such text is read as one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from beam_jobs.logs import MAX_LINE_BYTES, is_identifier, read_timestamp
from features.spec import Feature, FeatureSpec
from features.values import shown

# The joined table is a side input: every worker holds it in memory, about 1 kB a row.
LARGEST_TABLE = 5_000_000  # rows


class Product(NamedTuple):
    """One row. timestamp_ms: 0 where the row has none."""

    item_id: str
    timestamp_ms: int
    features: dict[str, Any]


class MalformedProduct(NamedTuple):
    reason: str
    detail: str


Products = Mapping[str, Product]


def read_product(line: bytes, spec: FeatureSpec) -> Product | MalformedProduct:
    """One line of a product table, with the columns that the spec has."""
    if len(line) >= MAX_LINE_BYTES:
        return MalformedProduct("product_too_long", f"expected less than {MAX_LINE_BYTES} bytes")
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return MalformedProduct("product_not_json", str(error))
    if not isinstance(row, dict):
        return MalformedProduct("product_not_an_object", f"is {type(row).__name__}, expected a JSON object")
    item_id = row.pop("item_id", None)
    if not is_identifier(item_id):
        return MalformedProduct("product_item_id_missing", f"item_id is {shown(item_id)}, expected text")
    stamp = row.pop("timestamp_ms", None)
    timestamp_ms = 0 if stamp is None else read_timestamp(stamp)
    if timestamp_ms is None:
        return MalformedProduct("product_timestamp_invalid", f"timestamp_ms is {shown(stamp)}, expected milliseconds")
    known = spec.features
    return Product(
        str(item_id), timestamp_ms, {name: _cell(known[name], raw) for name, raw in row.items() if name in known}
    )


def _cell(feature: Feature, raw: Any) -> Any:
    if isinstance(raw, str):
        return _number(raw) if feature.is_numeric else raw
    if isinstance(raw, dict) or (isinstance(raw, list) and any(isinstance(value, (list, dict)) for value in raw)):
        return {}  # no value of any feature, however much it holds
    return raw


def _number(text: str) -> Any:
    """'3.5', 'TRUE' or '[0.1, 2]' as what it says; other text as it is, to be refused with its name."""
    try:
        return orjson.loads(text.lower())
    except orjson.JSONDecodeError:
        return text


def read_table(lines: Iterable[bytes], spec: FeatureSpec) -> dict[str, Product]:
    """Lines of a product table, of each item the row that counts; lines that are no rows are left out."""
    table: dict[str, Product] = {}
    for line in lines:
        row = read_product(line, spec)
        if isinstance(row, Product):
            known = table.setdefault(row.item_id, row)
            if known is not row:
                table[row.item_id] = latest((known, row))
    return table


def latest(rows: Iterable[Product]) -> Product:
    """Of one item's rows the one that counts: the latest; among equals, whatever the order of reading, the same."""
    return max(rows, key=lambda row: (row.timestamp_ms, orjson.dumps(row.features, option=orjson.OPT_SORT_KEYS)))
