"""The bounded cache: its size limit, which entries it evicts, and what it counts."""

from hypothesis import given
from hypothesis import strategies as st

from serving.backends.cache import BoundedCache

KEYS = st.binary(max_size=60)


def new_cache(max_bytes: int) -> BoundedCache[bytes]:
    return BoundedCache(max_bytes, len)


@given(st.lists(st.tuples(KEYS, st.integers(0, 60)), max_size=60), st.integers(2, 200))
def test_it_never_exceeds_its_bound_nor_returns_another_value(puts: list[tuple[bytes, int]], max_bytes: int) -> None:
    cache, stored = new_cache(max_bytes), {}
    for key, size in puts:
        if cache.get(key) is None:
            cache.put(key, key[:1] * size)
            stored[key] = key[:1] * size
        found = cache.get(key)
        assert found is None or found == stored[key]
        assert (0 if found is None else len(key) + len(found)) <= cache.nbytes <= max_bytes


def test_requested_entries_stay_while_others_are_evicted() -> None:
    cache = new_cache(100)
    cache.put(b"first", b"x" * 10)
    for number in range(200):
        cache.put(b"%d" % number, b"y" * 10)
        assert cache.get(b"first") == b"x" * 10
    assert cache.get(b"0") is None


def test_an_entry_larger_than_half_of_the_bound_is_not_stored() -> None:
    cache = new_cache(100)
    cache.put(b"x" * 20, b"x" * 31)
    assert cache.get(b"x" * 20) is None
    assert cache.nbytes == 0


def test_keys_count_towards_the_bound() -> None:
    cache = new_cache(100)
    cache.put(b"x" * 20, b"y" * 10)
    cache.put(b"z" * 5, b"")
    assert cache.nbytes == 35


def test_hits_and_misses_are_counted() -> None:
    cache = new_cache(100)
    cache.put(b"here", b"x")
    found = [cache.get(key) for key in (b"here", b"there", b"here")]
    assert found == [b"x", None, b"x"] == [cache.peek(key) for key in (b"here", b"there", b"here")]
    assert (cache.hits, cache.misses) == (2, 1)
