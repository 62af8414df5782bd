"""Simulates a shop's search logs: events, a product table, and the true relevance, which only evaluation reads.

python -m simulator --config configs/product_search.yaml --output build/demo/logs
"""

import argparse
import hashlib
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from features.errors import InputError
from features.manifest import PublishedManifest, stage_key
from features.task import load_task, parse_section
from simulator.catalogue.shop import CatalogueShop
from simulator.judged_pairs import JudgedPairsShop
from simulator.shop import IntArray, Shop
from simulator.simulated_log import Funnel, LogShard, Simulation, SimulatorConfig, gzipped

_LOGS_VERSION = 1  # raised when the same config gives other logs
_PRODUCTS_FILE, _RELEVANCE_FILE = "products.jsonl.gz", "relevance.tsv.gz"


def main() -> None:
    args = _arguments()
    config = parse_section(load_task(args.config), "simulator", SimulatorConfig)
    workers = args.workers if args.workers is not None else os.cpu_count() or 1
    if workers < 1:
        raise InputError(f"--workers is {workers}, expected 1 or more processes")
    simulate_logs(config, args.output, args.judged_pairs, workers)


def simulate_logs(config: SimulatorConfig, output: str, judged_pairs: str | None, workers: int) -> None:
    """Writes the log directory, unless it is up to date.

    workers: processes; the output does not depend on them.
    Errors: InputError.
    """
    # imported here because spawned workers import this module and do not need Beam, whose import takes seconds
    from beam_jobs.sinks import output_directory
    from beam_jobs.storage.files import existing_manifest

    key = stage_key(
        stage="simulate_logs",
        version=_LOGS_VERSION,
        simulator=config.model_dump(mode="json"),
        judged_pairs=_sha256(_check_judged_pairs(judged_pairs, config)),
    )
    output_directory.check_output_directory(output)
    existing = existing_manifest(output, LogsManifest)
    if existing and existing.stage_key == key:
        output_directory.finish_killed_output(output)
        print(f"up to date: {output}")
        return
    started = time.monotonic()
    print(f"simulating {config.requests:,} search requests (source: {config.source}; all behaviour is simulated)")
    simulation = Simulation(config, make_shop(config, judged_pairs))
    print(f"  {len(simulation.shop.products):,} products, {len(simulation.shop.queries):,} distinct queries")
    with output_directory.new_output_version(output) as version:
        files = {}
        funnel, faults, lines, pairs = Funnel(), Counter[str](), 0, []
        for shard in _simulate_shards(simulation, workers):
            name = f"events-{shard.index:05d}-of-{simulation.shards:05d}.jsonl.gz"
            files[name] = version.write(name, shard.content)
            funnel.add(shard.funnel)
            faults.update(shard.faults)
            lines += shard.lines
            pairs.append(shard.pairs)
            if shard.index % 4 == 3 or shard.index == simulation.shards - 1:
                done, seconds = funnel.events["impression"], time.monotonic() - started
                print(f"  {done:,} of {config.requests:,} requests, {seconds:.1f} s", flush=True)
        shown = np.unique(np.concatenate(pairs))
        files[_PRODUCTS_FILE] = version.write(_PRODUCTS_FILE, _product_table(simulation.shop))
        files[_RELEVANCE_FILE] = version.write(_RELEVANCE_FILE, _relevance_table(simulation, shown))
        summary = _summary(funnel, faults, lines, len(shown), simulation)
        options = {"simulator": config.model_dump(mode="json"), "summary": summary}
        manifest = version.publish(LogsManifest(stage_key=key, options=options), files)
        output_directory.print_unlisted_files(output, manifest)
    print(_describe_summary(summary))
    print(f"wrote {output} in {time.monotonic() - started:.1f} s: {simulation.shards} event files, products, relevance")


class LogsManifest(PublishedManifest):
    """Manifest of a directory of simulated logs; options: simulator (the config) and summary (the counts)."""

    kind: str = "logs"


def make_shop(config: SimulatorConfig, judged_pairs: str | None) -> Shop:
    """Builds the shop that the config names. Errors: InputError."""
    path = _check_judged_pairs(judged_pairs, config)
    if path is not None:
        return JudgedPairsShop(path, config.utility)
    return CatalogueShop(config.catalogue, config.utility, config.seed)


def _product_table(shop: Shop) -> bytes:
    """products.jsonl.gz: one product per line."""
    return gzipped(b"".join(orjson.dumps(product.to_json()) + b"\n" for product in shop.products))


def _relevance_table(simulation: Simulation, pairs: IntArray) -> bytes:
    """relevance.tsv.gz: query, item_id, relevance (0..3) of the pairs that were shown."""
    rows = ("\t".join(map(str, simulation.pair(key))) for key in pairs.tolist())
    return gzipped("\n".join(["query\titem_id\trelevance", *rows, ""]).encode())


def _summary(funnel: Funnel, faults: Counter[str], lines: int, pairs: int, simulation: Simulation) -> dict[str, Any]:
    """The manifest's counts: events before faults, then the faults."""
    return {
        "products": len(simulation.shop.products),
        "queries": len(simulation.shop.queries),
        "lines": lines,
        "pairs_with_relevance": pairs,
        "events": dict(funnel.events),
        "requests_with": dict(funnel.requests_with),
        "shown_at_position": [funnel.shown_at[position] for position in sorted(funnel.shown_at)],
        "clicked_at_position": [funnel.clicked_at[position] for position in sorted(funnel.shown_at)],
        "shown_of_grade": [funnel.shown_of_grade[grade] for grade in sorted(funnel.shown_of_grade)],
        "purchased_of_grade": [funnel.purchased_of_grade[grade] for grade in sorted(funnel.shown_of_grade)],
        "faults": dict(sorted(faults.items())),
    }


def _describe_summary(summary: dict[str, Any]) -> str:
    events, requests_with = summary["events"], summary["requests_with"]
    requests = events["impression"]
    rates = [
        f"{shown and 100 * clicked / shown:.1f}"
        for shown, clicked in zip(summary["shown_at_position"], summary["clicked_at_position"], strict=True)
    ]
    shown, bought = summary["shown_of_grade"], summary["purchased_of_grade"]
    faults = [f"{name} {count}" for name, count in summary["faults"].items() if ":" not in name]
    rows = [
        f"  requests {requests:,}; with a click {requests_with['click'] / requests:.1%}, "
        f"an add-to-cart {requests_with['add_to_cart'] / requests:.1%}, "
        f"a purchase {requests_with['purchase'] / requests:.1%}",
        f"  clicks {events['click']:,}, adds to cart {events['add_to_cart']:,}, purchases {events['purchase']:,}",
        f"  click rate by position (%): {' '.join(rates)}",
        f"  items shown by true grade 0 1 2 3 (%): {_percentages(shown)}; purchased: {_percentages(bought)}",
        f"  lines {summary['lines']:,}; injected faults: {', '.join(faults) or 'none'}",
    ]
    return "\n".join(rows)


def _percentages(counts: list[int]) -> str:
    total = sum(counts) or 1
    return " ".join(f"{100 * count / total:.1f}" for count in counts)


def _check_judged_pairs(judged_pairs: str | None, config: SimulatorConfig) -> str | None:
    if config.source == "judged_pairs" and judged_pairs is None:
        raise InputError(
            "simulator.source is judged_pairs, but --judged-pairs is not given: give the path of a TSV of judged pairs"
        )
    if config.source != "judged_pairs" and judged_pairs is not None:
        raise InputError(
            f"--judged-pairs {judged_pairs} is given, but simulator.source is {config.source!r}: "
            "leave it out, or use a task file whose source is judged_pairs, such as configs/esci.yaml"
        )
    return judged_pairs


def _sha256(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(
            f"cannot read judged pairs {path}: {error.strerror}; give --judged-pairs an existing TSV"
        ) from None


def _simulate_shards(simulation: Simulation, workers: int) -> Iterator[LogShard]:
    """All shards, in order."""
    workers = min(workers, simulation.shards)
    if workers == 1:
        yield from map(simulation.shard, range(simulation.shards))
        return
    with _pool(simulation, workers) as pool:
        yield from pool.imap(_shard_in_worker, range(simulation.shards))


@contextmanager
def _pool(simulation: Simulation, workers: int) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")  # a forked child would inherit locks held by the caller's threads
    with context.Pool(workers, initializer=_init_worker, initargs=(simulation,)) as pool:
        yield pool


_worker_simulation: list[Simulation] = []  # in a worker process: its simulation


def _init_worker(simulation: Simulation) -> None:
    _worker_simulation[:] = [simulation]


def _shard_in_worker(index: int) -> LogShard:
    return _worker_simulation[0].shard(index)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Simulates a shop's search logs (see docs/simulator.md). All behaviour in them is simulated.",
        epilog="example:\n  python -m simulator --config configs/product_search.yaml --output build/demo/logs",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, help="task file; its section `simulator` is read")
    parser.add_argument(
        "--output", required=True, help="directory to write: events, products, relevance, manifest.json"
    )
    parser.add_argument("--judged-pairs", help="TSV of judged query-title pairs, for the source judged_pairs")
    parser.add_argument(
        "--workers", type=int, help="processes (default: one a core); the output does not depend on them"
    )
    return parser.parse_args()
