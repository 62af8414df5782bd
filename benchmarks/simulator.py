"""Query-item pairs/s of simulate_logs on one core: the demo's shop with many requests, in core seconds.

The shop is drawn once before; `simulator_shop_seconds` is its duration.
"""

import argparse
import time
from statistics import median

from benchmarks.figures import emit
from features.task import load_task, parse_section
from simulator.simulate_logs import make_shop
from simulator.simulated_log import Simulation, SimulatorConfig

_CONFIG = "configs/product_search.yaml"
_REQUESTS = 400_000
_SHARDS = 4  # measured shards, of the config's 16; the figure is their median


def bench_simulator(requests: int = _REQUESTS) -> None:
    """Emits `simulator_pairs_per_second`: draws, log lines and compression, without writing files."""
    config = parse_section(load_task(_CONFIG), "simulator", SimulatorConfig).model_copy(update={"requests": requests})
    started = time.process_time()
    simulation = Simulation(config, make_shop(config, None))
    emit("simulator_shop_seconds", time.process_time() - started, "s")
    emit(
        "simulator_pairs_per_second",
        median(_pairs_per_second(simulation, index) for index in range(_SHARDS)),
        "pairs/s",
    )


def _pairs_per_second(simulation: Simulation, index: int) -> float:
    started = time.process_time()
    shard = simulation.shard(index)
    return sum(shard.funnel.shown_at.values()) / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m benchmarks.simulator")
    parser.add_argument("--requests", type=int, default=_REQUESTS, help="requests of 16 items in the whole log")
    bench_simulator(parser.parse_args().requests)


if __name__ == "__main__":
    main()
