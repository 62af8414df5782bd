from pathlib import Path

import numpy as np
import pytest

from features.errors import InputError
from simulator.judged_pairs import JudgedPairsShop, read_judged_pairs
from simulator.shop import NO_ITEM, UtilityConfig

HEADER = "query_id\tquery\tproduct_id\ttitle\tesci_label\tgain"


def pairs_file(folder: Path, *rows: str, header: str = HEADER) -> str:
    path = folder / "pairs.tsv"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return str(path)


def test_judged_pairs_give_candidates_grades_and_utilities(tmp_path):
    path = pairs_file(
        tmp_path, *(f"1\tblue sofa\tp{gain}\ttitle {gain}\tE\t{gain}" for gain in range(4)), "2\tlamp\tp9\tLamp\tE\t3"
    )
    shop = JudgedPairsShop(path, UtilityConfig(base=(0.0, 0.2, 0.5, 0.9)))
    assert shop.queries == ("blue sofa", "lamp")
    drawn = shop.candidates(np.array([0, 1]), 3, np.random.default_rng(0))
    assert len(set(drawn.items[0].tolist())) == 3
    assert drawn.grades[0].tolist() == drawn.items[0].tolist()  # p0..p3 have their index as gain
    assert drawn.utilities[0].tolist() == [(0.0, 0.2, 0.5, 0.9)[grade] for grade in drawn.grades[0]]
    assert drawn.items[1].tolist() == [4, NO_ITEM, NO_ITEM]


def test_a_pair_judged_twice_keeps_its_higher_gain_and_query_texts_are_merged(tmp_path):
    path = pairs_file(tmp_path, "1\tsofa\ta\tA\tI\t0", "1\tsofa\ta\tA\tS\t2", "7\tsofa\tb\tB\tE\t3")
    shop = JudgedPairsShop(path, UtilityConfig())
    drawn = shop.candidates(np.array([0]), 16, np.random.default_rng(0))
    assert shop.queries == ("sofa",)
    assert dict(zip(drawn.items[0].tolist(), drawn.grades[0].tolist(), strict=True)) == {0: 2, 1: 3}


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (["1\ta\tb\tc\tE\t9"], HEADER, r"pairs\.tsv, line 2: gain is '9', expected one of 0, 1, 2, 3"),
        (["1\ta\tb\tc\tE\t3", "1\ta\tb\tc\tE\thigh"], HEADER, r"pairs\.tsv, line 3: gain is 'high'"),
        (["1\ta\tb\tc\tE"], HEADER, r"pairs\.tsv, line 2: 5 columns, expected 6"),
        (["1\t \tb\tc\tE\t3"], HEADER, r"pairs\.tsv, line 2: query is empty"),
        (["1\ta\tb\t\tE\t3"], HEADER, r"pairs\.tsv, line 2: title is empty"),
        (["a\tb\tc"], "query\tproduct_id\ttitle", r"pairs\.tsv, line 1: no column gain"),
        ([], HEADER, r"pairs\.tsv holds no judged pair"),
    ],
)
def test_wrong_judged_pairs_are_refused_with_file_and_line(tmp_path, rows, header, message):
    with pytest.raises(InputError, match=message):
        list(read_judged_pairs(pairs_file(tmp_path, *rows, header=header)))


def test_judged_pairs_that_are_not_utf_8_or_not_gzip_are_refused(tmp_path):
    latin = tmp_path / "latin.tsv"
    latin.write_bytes(HEADER.encode() + b"\n1\tcaf\xe9\tb\tc\tE\t3\n")
    with pytest.raises(InputError, match=r"latin\.tsv, line 2: not UTF-8"):
        list(read_judged_pairs(str(latin)))
    plain = tmp_path / "plain.tsv.gz"
    plain.write_text(HEADER)
    with pytest.raises(InputError, match=r"cannot read judged pairs .*plain\.tsv\.gz"):
        list(read_judged_pairs(str(plain)))


def test_an_empty_file_of_judged_pairs_is_refused(tmp_path):
    empty = tmp_path / "empty.tsv"
    empty.touch()
    with pytest.raises(InputError, match=r"empty\.tsv holds no judged pair"):
        list(read_judged_pairs(str(empty)))
