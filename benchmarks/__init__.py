"""Speed against peers, as ratios within one run: `python -m benchmarks` prints one JSON line per figure."""
