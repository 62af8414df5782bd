"""Speed against peers, as ratios in one run: `python -m benchmarks` prints one JSON line a figure."""
