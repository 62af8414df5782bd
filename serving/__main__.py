"""Serves an exported model over HTTP: `python -m serving --export-dir build/demo/run/export`."""

from features.termination import exit_on_sigterm

if __name__ == "__main__":
    exit_on_sigterm(unwind_seconds=None)  # until the server installs its own handler, which drains

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads it once, at import

from features.errors import exit_code_of
from serving.server.supervisor import supervise
from serving.server.worker import serve
from serving.settings import settings_of

_EXAMPLE = """example:
  python -m serving --export-dir build/demo/run/export
  curl -s http://127.0.0.1:8000/rank -H 'Content-Type: application/json' \\
    -d '{"query": "blue sofa", "items": ["Velvet sofa, navy", "Oak table"]}'
"""


def _port(given: str) -> int:
    if not given.isdecimal() or int(given) > 65535:
        raise argparse.ArgumentTypeError(f"{given!r} is no port, expected 0 to 65535")
    return int(given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m serving",
        description="Serves the highest complete version of an export directory at /rank, with a page to try it at /.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--export-dir", required=True, help="the `export` directory of a finished run")
    parser.add_argument("--port", type=_port, default=8000, help="TCP port (default 8000); 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default 127.0.0.1: this machine only)")
    parser.add_argument("--settings", help="YAML file with everything else: API keys, limits, queue (docs/settings.md)")
    parser.add_argument(
        "--allow-unauthenticated",
        action="store_true",
        help="answer every client that reaches the port; required if --host is not loopback and api_keys is empty",
    )
    return parser.parse_args()


def main() -> None:
    given = vars(_arguments())
    settings = settings_of(given, given.pop("settings"))
    if settings.processes.number > 1:
        supervise(settings)
    else:
        serve(settings)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
