"""The join of build_elwc in polars: items with titles and labels as data frames, without records or checks."""

import gzip
import io
from pathlib import Path

import polars as pl

_KINDS = ("click", "add_to_cart", "purchase")
_Schema = dict[str, type[pl.DataType] | pl.DataType]

_ACTION = pl.Struct({"item_id": pl.String})
_ITEM = pl.Struct({"item_id": pl.String, "position": pl.Int64})
_EVENT: _Schema = {
    "event_id": pl.String,
    "timestamp_ms": pl.Int64,
    "request_id": pl.String,
    "impression": pl.Struct({"query": pl.String, "items": pl.List(_ITEM)}),
    **dict.fromkeys(_KINDS, _ACTION),
}
_PRODUCT: _Schema = {"item_id": pl.String, "title": pl.String}


def join_with_polars(logs: list[Path], products: Path, windows_ms: dict[str, int]) -> dict[str, int]:
    """Returns the number of items with each kind of interaction within its window."""
    events = pl.concat([_read(path, _EVENT) for path in logs])
    events = events.sort("timestamp_ms").unique("event_id", keep="first", maintain_order=True)
    shown = events.filter(pl.col("impression").is_not_null()).unnest("impression")
    pairs = shown.select("request_id", "query", pl.col("timestamp_ms").alias("shown_ms"), "items").explode("items")
    pairs = pairs.unnest("items").join(_read(products, _PRODUCT), on="item_id", how="left")
    for kind in _KINDS:
        acted = events.filter(pl.col(kind).is_not_null()).select(
            "request_id", pl.col(kind).struct.field("item_id"), pl.col("timestamp_ms").alias("at_ms")
        )
        after = pl.col("at_ms") - pl.col("shown_ms")
        found = acted.join(pairs.select("request_id", "item_id", "shown_ms"), on=["request_id", "item_id"])
        found = found.filter((after >= 0) & (after <= windows_ms[kind])).select("request_id", "item_id").unique()
        pairs = pairs.join(found.with_columns(pl.lit(1).alias(kind)), on=["request_id", "item_id"], how="left")
    pairs = pairs.with_columns(pl.col(_KINDS).fill_null(0)).sort("request_id", "position")
    return {kind: int(pairs[kind].sum()) for kind in _KINDS}


def _read(path: Path, schema: _Schema) -> pl.DataFrame:
    return pl.read_ndjson(io.BytesIO(gzip.decompress(path.read_bytes())), schema=schema)
