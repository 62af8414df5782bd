"""What is kept: as much as there is room for, and what was asked for lately rather than what was not."""

from hypothesis import given
from hypothesis import strategies as st

from serving.kept import Kept

KEYS = st.binary(max_size=60)


def kept(most_bytes: int) -> Kept[bytes]:
    return Kept(most_bytes, len)


@given(st.lists(st.tuples(KEYS, st.integers(0, 60)), max_size=60), st.integers(2, 200))
def test_it_never_holds_more_bytes_than_it_may_nor_another_value(puts: list[tuple[bytes, int]], most: int) -> None:
    cache, held = kept(most), {}
    for key, size in puts:
        if cache.get(key) is None:
            cache.put(key, key[:1] * size)
            held[key] = key[:1] * size
        found = cache.get(key)
        assert found is None or found == held[key]
        assert (0 if found is None else len(key) + len(found)) <= cache.nbytes <= most


def test_what_is_asked_for_stays_while_others_come_and_go() -> None:
    cache = kept(100)
    cache.put(b"first", b"x" * 10)
    for number in range(200):
        cache.put(b"%d" % number, b"y" * 10)
        assert cache.get(b"first") == b"x" * 10
    assert cache.get(b"0") is None


def test_an_entry_larger_than_half_of_the_room_is_not_kept() -> None:
    cache = kept(100)
    cache.put(b"x" * 20, b"x" * 31)
    assert cache.get(b"x" * 20) is None
    assert cache.nbytes == 0


def test_keys_count_as_values_do() -> None:
    cache = kept(100)
    cache.put(b"x" * 20, b"y" * 10)
    cache.put(b"z" * 5, b"")
    assert cache.nbytes == 35


def test_what_was_found_and_what_was_not_is_counted() -> None:
    cache = kept(100)
    cache.put(b"here", b"x")
    found = [cache.get(key) for key in (b"here", b"there", b"here")]
    assert found == [b"x", None, b"x"] == [cache.again(key) for key in (b"here", b"there", b"here")]
    assert (cache.hits, cache.misses) == (2, 1)
