"""What is kept: as much as there is room for, and what was asked for lately rather than what was not."""

from hypothesis import given
from hypothesis import strategies as st

from serving.kept import Kept


def kept(most_bytes: int) -> Kept[int, bytes]:
    return Kept(most_bytes, len)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60), st.integers(2, 200))
def test_it_never_holds_more_bytes_than_it_may_and_never_another_value(puts: list[tuple[int, int]], most: int) -> None:
    cache = kept(most)
    for key, size in puts:
        if cache.get(key) is None:
            cache.put(key, bytes([key]) * size)
        found = cache.get(key)
        assert found is None or found == bytes([key]) * len(found)
        assert cache.bytes <= most
    assert cache.hits + cache.misses == 2 * len(puts)


def test_what_is_asked_for_stays_while_others_come_and_go() -> None:
    cache = kept(100)
    cache.put(0, b"x" * 10)
    for key in range(1, 200):
        cache.put(key, b"y" * 10)
        assert cache.get(0) == b"x" * 10
    assert cache.get(1) is None


def test_a_value_larger_than_half_of_the_room_is_not_kept() -> None:
    cache = kept(100)
    cache.put(1, b"x" * 51)
    assert cache.get(1) is None
    assert cache.bytes == 0
