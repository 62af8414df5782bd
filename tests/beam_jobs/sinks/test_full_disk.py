"""A disk that fills up and a rename that fails, for real: in a mount namespace of the test's own."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.beam_jobs.datasets import write_task
from tests.beam_jobs.log_lines import impression, write_jsonl

ROOT = Path(__file__).parents[3]
NAMESPACE = ["unshare", "--mount", "--map-root-user"]
DISK_BYTES = 256 * 1024


@pytest.fixture
def place(tmp_path: Path) -> Path:
    if subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode:
        pytest.skip("this machine lets no one mount a disk in a namespace of their own")
    chance = random.Random(1)
    write_task(tmp_path)
    write_jsonl(tmp_path / "few.jsonl", *[impression(f"r{n}", f"query {n}", "p1", "p2") for n in range(5)])
    write_jsonl(tmp_path / "other.jsonl", *[impression(f"s{n}", f"query {n}", "p1", "p2") for n in range(5)])
    many = [
        [{"item_id": f"p{n}", "features": {"title": chance.randbytes(400).hex()}} for n in range(5)] for _ in range(300)
    ]
    write_jsonl(tmp_path / "many.jsonl", *[impression(f"r{n}", f"query {n}", *items) for n, items in enumerate(many)])
    (tmp_path / "disk").mkdir()
    return tmp_path


def run(place: Path, trouble: str, logs: str) -> tuple[int, str, str]:
    """Builds a dataset of a few requests on a small disk, then one of `logs` over it, after `trouble`.

    Returns the second job's exit code and stderr, and how the disk's files differ after it.
    """
    job = f"{sys.executable} -W ignore -m beam_jobs.build_elwc --config {place}/task.yaml --output {place}/disk/dataset"
    files = f"find {place}/disk -type f -not -name '*.lock' -exec md5sum {{}} +"
    script = f"""
        mount -t tmpfs -o size={DISK_BYTES} tmpfs {place}/disk && {job} --input {place}/few.jsonl || exit 99
        {files} > {place}/before
        {trouble}
        {job} --input {place}/{logs}; code=$?
        {files} > {place}/after
        exit $code
    """
    done = subprocess.run(
        [*NAMESPACE, "bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    before, after = (sorted((place / name).read_text().splitlines()) for name in ("before", "after"))
    assert len(before) == 9
    return done.returncode, done.stderr, "" if before == after else f"{before} became {after}"


@pytest.mark.parametrize(
    ("trouble", "logs", "complaint"),
    [
        ("", "many.jsonl", "could not be written: [Errno 28] No space left on device"),
        (
            "mount --bind {0}/disk/dataset/manifest.json {0}/disk/dataset/manifest.json",
            *("other.jsonl", "could not be written: [Errno 16]"),
        ),
    ],
    ids=["a full disk", "a failing rename"],
)
def test_a_former_dataset_stays_whole(place: Path, trouble: str, logs: str, complaint: str) -> None:
    code, stderr, difference = run(place, trouble.format(place), logs)
    assert not difference
    assert code == 2, stderr
    assert complaint in stderr
    assert "what was there before stays as it was. Make room" in stderr
    assert "Traceback" not in stderr
