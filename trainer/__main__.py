"""`python -m trainer`: fit a task, compare its recipes over seeds, print a run's summary, draw its chart."""

import argparse
import sys

from features.errors import exit_code_of
from features.termination import exit_on_sigterm

_EXAMPLES = """examples:
  python -m trainer fit --config configs/product_search.yaml --dataset build/demo/dataset \\
    --vocabulary build/demo/vocabulary --workdir build/demo/run
  python -m trainer compare --config shop.yaml --dataset build/shop/dataset \\
    --vocabulary build/shop/vocabulary --workdir build/shop/comparison --seeds 5
  python -m trainer summary --workdir build/demo/run
  python -m trainer chart --workdir build/demo/run --output chart.png
"""


def argument_parser() -> argparse.ArgumentParser:
    """The commands and their flags."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fitting = commands.add_parser(
        "fit", help="train teachers and recipes, evaluate, report, export; finished stages are skipped"
    )
    _add_inputs(fitting)
    comparing = commands.add_parser(
        "compare", help="train and evaluate all recipes with several seeds, and recommend one; exports nothing"
    )
    _add_inputs(comparing)
    comparing.add_argument("--seeds", type=_positive, default=3, help="seeds, from the task's own on; 3 by default")
    summary = commands.add_parser("summary", help="print the table of a finished run")
    summary.add_argument("--workdir", required=True, help="the run's directory")
    chart = commands.add_parser("chart", help="draw the bar chart of a finished run")
    chart.add_argument("--workdir", required=True, help="the run's directory")
    chart.add_argument("--output", required=True, help="PNG file to write")
    return parser


def _add_inputs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", required=True, help="task file (YAML)")
    command.add_argument("--dataset", required=True, help="the directory that build_elwc wrote; gs:// works too")
    command.add_argument("--vocabulary", help="the directory that build_vocabulary wrote; of a task with text features")
    command.add_argument(
        "--relevance", help="true relevance, which only evaluation reads: TSV of query, item_id, relevance"
    )
    command.add_argument("--workdir", required=True, help="the run's directory")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is no number of seeds, expected at least 1")
    return number


def main() -> None:
    arguments = argument_parser().parse_args()
    COMMANDS[arguments.command](arguments)


def _fit(arguments: argparse.Namespace) -> None:
    from trainer.config import load_config

    config = load_config(arguments.config)
    # imported after the task file is checked: importing TensorFlow takes seconds
    from trainer.pipeline.fit import fit
    from trainer.pipeline.inputs import DataPaths

    fit(config, DataPaths(arguments.dataset, arguments.vocabulary, arguments.relevance), arguments.workdir)


def _compare(arguments: argparse.Namespace) -> None:
    from trainer.config import load_config

    config = load_config(arguments.config)
    from trainer.pipeline.compare import compare_recipes
    from trainer.pipeline.inputs import DataPaths

    data = DataPaths(arguments.dataset, arguments.vocabulary, arguments.relevance)
    compare_recipes(config, data, arguments.workdir, arguments.seeds)


def _summary(arguments: argparse.Namespace) -> None:
    from trainer.evaluation.summary import print_summary
    from trainer.pipeline.evaluate import load_metrics

    print_summary(load_metrics(arguments.workdir))


def _chart(arguments: argparse.Namespace) -> None:
    from trainer.pipeline.evaluate import load_metrics
    from trainer.pipeline.report import save_chart

    save_chart(load_metrics(arguments.workdir), arguments.output)
    print(f"wrote {arguments.output}")


COMMANDS = {"fit": _fit, "compare": _compare, "summary": _summary, "chart": _chart}

if __name__ == "__main__":
    exit_on_sigterm()
    sys.exit(exit_code_of(main))
