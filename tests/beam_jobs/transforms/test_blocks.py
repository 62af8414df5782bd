"""Lines packed for a shuffle come out whole, with those of their key and no others."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.transforms import blocks
from beam_jobs.transforms.blocks import Blocks, lines_by_key, pack_lines, unpack_lines

LINES = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=30).map(lambda line: line.replace(b"\n", b""))))


def shuffled(keyed: list[tuple[str, bytes]], shards: int) -> dict[int, list[bytes]]:
    """What a runner would group: shard -> its blocks."""
    collecting, found = Blocks(shards), defaultdict(list)
    full = [block for key, line in keyed if (block := collecting.add(key, line))]
    for shard, block in (*full, *collecting.flush()):
        found[shard].append(block)
    return found


@given(LINES, st.integers(1, 5), st.integers(1, 200))
def test_every_line_comes_out_once_with_the_lines_of_its_key(keyed: list[tuple[str, bytes]], shards: int, size: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", size)
        grouped = [lines for of_shard in shuffled(keyed, shards).values() for lines in lines_by_key(of_shard)]
    expected = defaultdict(list)
    for key, line in keyed:
        expected[key].append(line)
    assert sorted(grouped) == sorted(expected.values())


@given(LINES)
def test_keys_come_in_the_order_of_their_first_lines(keyed: list[tuple[str, bytes]]):
    expected = defaultdict(list)
    for key, line in keyed:
        expected[key].append(line)
    assert list(lines_by_key(shuffled(keyed, 1)[0])) == list(expected.values())


def test_keys_spread_over_all_shards():
    found = shuffled([(f"r{number}", b"line") for number in range(8000)], 8)
    counts = [sum(len(unpack_lines(block)) for block in found[shard]) for shard in range(8)]
    assert sum(counts) == 8000
    assert min(counts) > 850  # 1000 expected, deviation 30


def test_blocks_are_of_bounded_size_however_many_shards_there_are():
    keyed = [(f"r{number}", b"x" * 1000) for number in range(3000)]
    of_one = shuffled(keyed, 1)[0]
    sizes = [sum(len(line) - blocks.KEY_BYTES for line in unpack_lines(block)) for block in of_one]
    assert max(sizes) < blocks.BLOCK_BYTES + 1000
    assert len(of_one) > 10
    collecting = Blocks(blocks.WAITING_BYTES // 4000)  # so many that 4000 bytes fill a block
    assert sum(collecting.add("one key", b"x" * 1000) is not None for _ in range(8)) == 2


def test_a_block_is_smaller_than_its_lines():
    lines = [b'{"event_id": "e%d", "click": {"item_id": "p%d"}}' % (n, n % 10) for n in range(1000)]
    assert unpack_lines(pack_lines(lines)) == lines
    assert len(pack_lines(lines)) < len(b"".join(lines)) / 4
