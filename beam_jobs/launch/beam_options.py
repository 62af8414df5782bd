"""Parses Beam's options from the rest of a command line; the default runner is in-process."""

import logging
import os
from collections.abc import Sequence

from apache_beam.options.pipeline_options import DirectOptions, GoogleCloudOptions, PipelineOptions, StandardOptions

from features.errors import InputError

# The full class path: with a shorter name Beam may first download another runner.
IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


def pipeline_options(arguments: Sequence[str]) -> PipelineOptions:
    """Parses pipeline options.

    Errors: InputError for an option that neither the command nor Beam knows.
    """
    quieten_beam()
    for argument in arguments:
        if not argument.startswith("--") and argument == arguments[0]:
            raise InputError(f"unexpected argument {argument!r}: expected options such as --runner; see --help")
    try:
        options = PipelineOptions(list(arguments))
        known = options.get_all_options()
        unknown = sorted(set(options.get_all_options(retain_unknown_options=True)) - set(known))
    except SystemExit:  # from argparse, which has printed the reason
        raise InputError("a pipeline option has a value that Beam does not take (above); correct it") from None
    if unknown:
        raise InputError(f"unknown option --{unknown[0]}: neither this command nor Apache Beam has it; see --help")
    if options.view_as(StandardOptions).runner is None:
        options.view_as(StandardOptions).runner = IN_PROCESS_RUNNER
    return options


def runs_in_process(options: PipelineOptions) -> bool:
    return str(options.view_as(StandardOptions).runner) == IN_PROCESS_RUNNER


def ends_before_pipeline(options: PipelineOptions) -> bool:
    """Whether the command only writes a Dataflow template: Dataflow runs the pipeline later (Flex Template launch)."""
    return bool(options.view_as(GoogleCloudOptions).template_location)


def local_workers(options: PipelineOptions) -> int:
    """Returns the number of workers that Beam starts on this machine; 1 for a remote runner."""
    if not runs_in_process(options):
        return 1
    return int(options.view_as(DirectOptions).direct_num_workers) or os.cpu_count() or 1


def quieten_beam() -> None:
    """Silences Beam's log below errors: the commands print their own progress."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # of Beam's own imports, in its worker processes
    for name in ("apache_beam", "root"):
        logging.getLogger(name).setLevel(logging.ERROR)
