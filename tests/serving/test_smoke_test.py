"""`python -m serving.smoke_test`: one question to a gateway process of its own, from start to stop."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from features.errors import InputError
from serving.smoke_test import as_table, newest_manifest

ROOT = Path(__file__).parents[2]


def run_ask(export_dir: Path) -> subprocess.CompletedProcess[str]:
    # a proxy that nobody runs: the gateway on this machine must be asked all the same
    environment = os.environ | {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
    command = [sys.executable, "-m", "serving.smoke_test", "--export-dir", str(export_dir)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


def test_a_real_gateway_is_asked_and_its_answer_shown(shop_export: Path):
    done = run_ask(shop_export)
    assert done.returncode == 0, done.stderr
    question = newest_manifest(shop_export).warm_up[0]
    assert f"query: {question['query']}" in done.stdout
    assert "version 3" in done.stdout
    for item in question["items"]:
        assert (item if isinstance(item, str) else item["title"]) in done.stdout


def test_the_answer_is_a_line_for_each_result_in_the_order_given():
    question = {"query": "blue sofa", "items": ["Oak table", {"id": "p2", "title": "Blue sofa", "price": 9.5}]}
    answer = {"results": [{"id": "p2", "index": 1, "score": 0.75}, {"id": "0", "index": 0, "score": 0.125}]}
    assert as_table(question, answer).splitlines() == [
        "  query: blue sofa",
        "  rank    score  given  item",
        "     1   0.7500      2  Blue sofa (price 9.5)",
        "     2   0.1250      1  Oak table",
    ]


def test_items_without_a_title_show_their_features():
    question = {"items": [{"id": "a", "vector": [1.0, 2.0]}]}
    answer = {"results": [{"id": "a", "index": 0, "score": 0.5}]}
    assert as_table(question, answer).splitlines()[-1].endswith("vector [1.0, 2.0]")


def test_the_newest_version_is_the_highest_number(shop_export: Path, tmp_path: Path):
    # "10" sorts before "9" as text
    for version in ("9", "10"):
        folder = tmp_path / version / "assets.extra"
        folder.mkdir(parents=True)
        content = json.loads(newest_manifest(shop_export).to_bytes())
        (folder / "manifest.json").write_text(json.dumps({**content, "name": f"version-{version}"}))
    (tmp_path / ".11.partial").mkdir()
    assert newest_manifest(tmp_path).name == "version-10"


@pytest.mark.parametrize("make", ["missing", "empty", "unfinished"])
def test_a_directory_without_a_finished_export_is_refused(tmp_path: Path, make: str):
    folder = tmp_path / "export"
    if make != "missing":
        folder.mkdir()
    if make == "unfinished":
        (folder / "1").mkdir()
    with pytest.raises(InputError, match=r"no exported model in|cannot read .*manifest\.json"):
        newest_manifest(folder)


def test_a_gateway_that_does_not_start_is_quoted_with_exit_code_2(shop_export: Path, tmp_path: Path):
    folder = tmp_path / "1" / "assets.extra"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(newest_manifest(shop_export).to_bytes())  # but no model beside it
    done = run_ask(tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "error: the gateway ended with exit code" in done.stderr
