"""Reading of plain and compressed files, whole and in parts; written records; worker processes."""

import gzip
import lzma
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beam_jobs.launch.processes import map_in_processes
from beam_jobs.letor.files import PART_BYTES, FilePart, parts_of, read_documents
from beam_jobs.letor.lines import Document
from beam_jobs.storage.files import match_files
from beam_jobs.storage.tfrecords import record_writer
from features.errors import InputError
from tests.beam_jobs.letor_sets import ROOT, line, random_lines, write

LINES = random_lines(range(9), seed=1, documents=4)
ODD = [b"# a header\n", *LINES[:3], b"\n", *LINES[3:], b"# the end"]  # a blank line within the first group


def parts(path: Path, part_bytes: int = PART_BYTES) -> list[FilePart]:
    return parts_of(match_files([str(path)], "--train")[0], part_bytes)


def content(*read: FilePart) -> list[tuple[str, int, list[float]]]:
    return [(d.query, d.relevance, d.values.tolist()) for part in read for d in read_documents(part, 6)]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.xz", "a"])
def test_a_file_is_decompressed_by_its_suffix(tmp_path, name):
    read = content(*parts(write(tmp_path / name, *ODD)))
    assert [query for query, _, _ in read] == [str(query) for query in range(9) for _ in range(4)]
    assert [line(relevance, query, values) for query, relevance, values in read] == LINES


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_parts_of_any_size_hold_every_line_once_and_whole_groups(tmp_path, end):
    path = write(tmp_path / "a.txt", *(text.rstrip(b"\n") + end for text in ODD))
    (whole,) = parts(path)
    cut = set()
    for part_bytes in range(1, path.stat().st_size + 9, 8):
        pieces = parts(path, part_bytes)
        assert content(*pieces) == content(whole), part_bytes
        queries = [{query for query, _, _ in content(piece)} for piece in pieces]
        assert sum(map(len, queries)) == 9, part_bytes
        cut.add(len(pieces))
    assert cut >= {1, 2, 3, 9 - 1}


def test_a_file_of_one_query_is_one_part_and_an_empty_file_has_no_documents(tmp_path):
    assert len(parts(write(tmp_path / "one.txt", *LINES[:4]), 10)) == 1
    assert content(*parts(write(tmp_path / "empty.txt"), 10)) == []


def test_a_malformed_line_is_named_by_its_line_number_in_the_file(tmp_path):
    lines = [*ODD]
    lines[30] = b"0 qid:7 1:x\n"
    path = write(tmp_path / "a.txt", *lines)
    for part_bytes in (50, 300, PART_BYTES):
        with pytest.raises(InputError) as raised:
            content(*parts(path, part_bytes))
        assert str(raised.value) == (
            f"{path}, line 31: a feature is '1:x', expected id:value with finite numbers. "
            "Correct the line, or remove it"
        )
    with pytest.raises(InputError, match=r"a\.txt\.gz, line 31: "):
        content(*parts(write(tmp_path / "a.txt.gz", *lines)))


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("cut.gz", gzip.compress(b"".join(LINES))[:-20]),
        ("cut.xz", lzma.compress(b"".join(LINES))[:-20]),
        ("plain.gz", b"".join(LINES)),
        ("plain.xz", b"".join(LINES)),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, packed):
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(InputError, match=rf"cannot read .*{name} to its end: .*; give the whole, undamaged file"):
        content(*parts(tmp_path / name))


def test_tensorflow_reads_the_written_records(tmp_path):
    import tensorflow as tf

    path, records = str(tmp_path / "a.tfrecord.gz"), [b"", b"one", bytes(range(256)) * 100]
    with record_writer(path) as write_record:
        for record in records:
            write_record(record)
    assert [r.numpy() for r in tf.data.TFRecordDataset(path, compression_type="GZIP")] == records  # checks its CRCs


# ---- processes ----


def first_document(part: FilePart) -> Document:
    return next(read_documents(part, 6))


def process_of(part: FilePart) -> int:
    return os.getpid()


@pytest.mark.slow
def test_results_come_in_the_order_of_the_tasks_from_several_processes(tmp_path):
    pieces = parts(write(tmp_path / "a.txt", *LINES), 100)
    with map_in_processes(first_document, pieces, 2) as results:
        assert [document.query for document in results] == [content(piece)[0][0] for piece in pieces]
    with map_in_processes(process_of, pieces, 2) as results:
        assert os.getpid() not in set(results)
    with map_in_processes(process_of, pieces, 1) as results:
        assert set(results) == {os.getpid()}


def test_an_error_in_a_process_is_raised_in_the_caller(tmp_path):
    pieces = parts(write(tmp_path / "a.txt", *LINES[:8], b"0 1:5\n", *LINES[8:]), 100)
    with (
        pytest.raises(InputError, match="line 9: the second field"),
        map_in_processes(first_document, pieces, 2) as results,
    ):
        list(results)


WAITS = """
import sys, time
from pathlib import Path
from beam_jobs.launch.processes import map_in_processes

def wait(path):
    Path(path).touch()
    time.sleep(120)

if __name__ == "__main__":
    with map_in_processes(wait, sys.argv[1:], 2) as results:
        list(results)
"""


def test_processes_end_with_the_one_that_started_them(tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    marks = [tmp_path / "one", tmp_path / "two"]
    command = [sys.executable, str(tmp_path / "waits.py"), *map(str, marks)]
    parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    deadline = time.monotonic() + 120
    while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
        time.sleep(0.1)
    children = children_of(parent.pid)
    assert len(children) >= 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, children))


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
