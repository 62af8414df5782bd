"""Query-item pairs/s of simulate_logs on one core: the demo's shop with many requests, in seconds of the core's time.

The shop is drawn before, once for any number of requests; `simulator_shop_seconds` says how long that takes.
"""

import argparse
import time
from statistics import median

from beam_jobs.simulate_logs import make_shop
from beam_jobs.simulated_log import Simulation, SimulatorConfig
from benchmarks.figures import emit
from features.task import load_task, parse_section

CONFIG = "configs/product_search.yaml"
REQUESTS = 400_000
SHARDS = 4  # of the config's 16: each is measured, and the median counts


def bench_simulator(requests: int = REQUESTS) -> None:
    """Emits `simulator_pairs_per_second`: draws, log lines and compressed files, all but the writing of them."""
    config = parse_section(load_task(CONFIG), "simulator", SimulatorConfig).model_copy(update={"requests": requests})
    started = time.process_time()
    simulation = Simulation(config, make_shop(config, None))
    emit("simulator_shop_seconds", time.process_time() - started, "s")
    emit("simulator_pairs_per_second", median(_speed(simulation, index) for index in range(SHARDS)), "pairs/s")


def _speed(simulation: Simulation, index: int) -> float:
    started = time.process_time()
    shard = simulation.shard(index)
    return sum(shard.funnel.shown_at.values()) / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m benchmarks.simulator")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="requests of 16 items in the whole log")
    bench_simulator(parser.parse_args().requests)


if __name__ == "__main__":
    main()
