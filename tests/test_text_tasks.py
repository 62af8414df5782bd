"""The tasks of `make demo-text` and `make compare-loggers`: from judged pairs to an export, with a tiny encoder."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.trainer.models.tiny_encoder import write_encoder
from trainer.config import load_config

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
LOGGERS = sorted((CONFIGS / "loggers").glob("*.yaml"))
COLOURS, THINGS = ["red", "blue", "green"], ["sofa", "lamp", "table", "chair", "rug"]
# what the tiny encoder and a few groups ask for; all else is the file's own
SMALL: dict[str, Any] = {
    "student": {"split_layers": 3, "freeze": 3, "max_item_tokens": 7, "max_context_tokens": 7},
    "dataset": {"min_distinct_users": 1},
    "training": {"steps": 4, "evaluate_every": 4, "warmup_steps": 1},
    "teacher_training": {"steps": 4, "evaluate_every": 4, "warmup_steps": 1},
    "evaluation": {"bootstrap_samples": 100},
}


def judged_pairs(path: Path) -> Path:
    """Every query of a colour and a thing, with 16 titles of gain 3 (both words), 2 (the thing) and 0."""
    generator, lines = random.Random(3), ["query_id\tquery\tproduct_id\ttitle\tgain"]
    for number, (colour, thing) in enumerate((c, t) for c in COLOURS for t in THINGS):
        for place in range(16):
            words = {3: (colour, thing), 2: (generator.choice(COLOURS), thing), 0: (colour, "other")}
            gain = (3, 2, 0)[place % 3]
            lines.append(f"{number}\t{colour} {thing}\tp{number}-{place}\t{' '.join(words[gain])}\t{gain}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_logger_is_the_demo_of_another_shop():
    demo = load_config(str(CONFIGS / "text.yaml"))
    rankers = {}
    for path in LOGGERS:
        config = load_config(str(path))
        rankers[path.stem] = config.resolved["simulator"]["behaviour"].pop("ranker")
        expected = yaml.safe_load(yaml.safe_dump(demo.resolved))
        del expected["simulator"]["behaviour"]["ranker"]
        assert config.resolved == expected
    assert [rankers[name]["utility_weight"] for name in ("blind", "lexical", "quarter", "half", "knowing")] == [
        0.0, 0.0, 0.25, 0.5, 1.0,
    ]  # fmt: skip
    assert rankers["lexical"] == demo.resolved["simulator"]["behaviour"]["ranker"]


def test_the_commands_of_the_demo_make_an_export_from_judged_pairs(tmp_path: Path):
    pairs, encoder = judged_pairs(tmp_path / "pairs.tsv"), write_encoder(tmp_path / "encoder")
    task, logs = tmp_path / "task.yaml", tmp_path / "logs"
    student = {**SMALL["student"], "pretrained": str(encoder)}
    small = {**SMALL, "extends": str(CONFIGS / "text.yaml"), "student": student, "simulator": {"requests": 600}}
    task.write_text(yaml.safe_dump(small))
    flags = ["--config", task]
    run("simulator", *flags, "--output", logs, "--judged-pairs", pairs)
    inputs = ["--input", f"{logs}/events-*.jsonl.gz", "--products", logs / "products.jsonl.gz"]
    run("beam_jobs.build_elwc", *flags, *inputs, "--output", tmp_path / "dataset")
    data = ["--dataset", tmp_path / "dataset", "--relevance", logs / "relevance.tsv.gz"]
    printed = run("trainer", "fit", *flags, *data, "--workdir", tmp_path / "run")
    for row in ("logged order", "BM25", "zero-shot cosine", "BM25 + zero-shot cosine", "from_position", "student"):
        assert f"| {row} " in printed
    assert list((tmp_path / "run" / "export").glob("[0-9]*/saved_model.pb"))


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
