"""`python -m trainer`: fit a task, print a run's summary, draw its chart."""

import argparse
import sys

from features.errors import exit_code_of

EXAMPLES = """examples:
  python -m trainer fit --config configs/product_search.yaml --workdir build/demo/run
  python -m trainer summary --workdir build/demo/run
  python -m trainer chart --workdir build/demo/run --output chart.png
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fitting = commands.add_parser(
        "fit", help="train teachers and recipes, evaluate, report, export; finished stages are skipped"
    )
    fitting.add_argument("--config", required=True, help="task file (YAML)")
    fitting.add_argument("--workdir", required=True, help="the run's directory; gs:// works too")
    summary = commands.add_parser("summary", help="print the table of a finished run")
    summary.add_argument("--workdir", required=True, help="the run's directory")
    chart = commands.add_parser("chart", help="draw the bar chart of a finished run")
    chart.add_argument("--workdir", required=True, help="the run's directory")
    chart.add_argument("--output", required=True, help="PNG file to write")
    arguments = parser.parse_args()
    COMMANDS[arguments.command](arguments)


def _fit(arguments: argparse.Namespace) -> None:
    from trainer.config import load_config

    config = load_config(arguments.config)
    from trainer.fit import fit  # imports TensorFlow, seconds long: not before the task file is known to be good

    fit(config, arguments.workdir)


def _summary(arguments: argparse.Namespace) -> None:
    from trainer.evaluate import load_metrics
    from trainer.summary import print_summary

    print_summary(load_metrics(arguments.workdir))


def _chart(arguments: argparse.Namespace) -> None:
    from trainer.evaluate import load_metrics
    from trainer.report import save_chart

    save_chart(load_metrics(arguments.workdir), arguments.output)
    print(f"wrote {arguments.output}")


COMMANDS = {"fit": _fit, "summary": _summary, "chart": _chart}

if __name__ == "__main__":
    sys.exit(exit_code_of(main))
