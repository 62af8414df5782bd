"""Every experiment, by its name."""

from collections.abc import Mapping
from typing import Any

from experiments.pfd import (
    alpha,
    imputation,
    letor_methods,
    linear,
    privileged_strength,
    shop_methods,
    sparsity,
    unlabelled_groups,
)
from experiments.rank_distil import rank_distil
from experiments.runner.experiment import Experiment
from experiments.sdr import sdr

# in the order in which `all` runs them
EXPERIMENTS: Mapping[str, Experiment[Any, Any]] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        linear,
        letor_methods,
        alpha,
        sparsity,
        privileged_strength,
        unlabelled_groups,
        imputation,
        sdr,
        rank_distil,
        shop_methods,
    )
}
