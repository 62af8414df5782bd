"""Sizes that query groups are padded to, so that the backends compile few shapes."""

# items; one call of the model scores the groups of one bucket
ITEM_BUCKETS = tuple(2**power for power in range(11))


def bucket_of(items: int) -> int:
    """Returns the smallest bucket with room for this number of items."""
    return next((bucket for bucket in ITEM_BUCKETS if bucket >= items), items)
