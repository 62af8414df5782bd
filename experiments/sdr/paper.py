"""The models of SDR's tables, and the numbers of Qin et al. beside them: NDCG@1, @5 and @10, in percent."""

from collections.abc import Mapping
from typing import TypeAlias

# as the tables name them -> the model here. `original` and `sdr` are means over the members of their ensembles; tables
# of single students have the first members, for all these start from one member's weights and see the same batches
MAIN = {
    "LambdaMART (LightGBM)": "lambdamart",
    "DASALC: SDR's teacher": "teacher_listwise",
    "DASALC: one member": "original",
    "SDR": "sdr",
    "DASALC-ens": "original_ensemble",
    "SDR-ens": "sdr_ensemble",
    "random order": "random_order",
}
POINTWISE_OR_LISTWISE = {
    "pointwise teacher": "teacher_pointwise",
    "pointwise teacher, pointwise distillation": "pointwise_pointwise",
    "pointwise teacher, listwise distillation": "pointwise_listwise",
    "listwise teacher": "teacher_listwise",
    "listwise teacher, pointwise distillation": "listwise_pointwise",
    "listwise teacher, listwise distillation (SDR)": "sdr_1",
}
Row: TypeAlias = tuple[float, float, float]  # NDCG@1, @5, @10, in percent
# Qin et al., Table 1: its best tree model and the rows that are ours too
PAPER_MAIN: Mapping[str, Mapping[str, Row]] = {
    "web30k": {
        "LambdaMART (LightGBM)": (50.73, 49.66, 51.48),
        "DASALC: SDR's teacher": (50.95, 50.92, 52.88),
        "SDR": (51.71, 51.56, 53.57),
        "DASALC-ens": (51.89, 51.72, 53.73),
        "SDR-ens": (52.22, 52.12, 54.09),
    },
    "yahoo": {
        "LambdaMART (LightGBM)": (71.88, 74.21, 78.02),
        "DASALC: SDR's teacher": (70.98, 73.76, 77.66),
        "SDR": (70.83, 73.89, 77.85),
        "DASALC-ens": (71.24, 74.07, 77.97),
        "SDR-ens": (71.45, 74.61, 78.31),
    },
    "istella": {
        "LambdaMART (LightGBM)": (74.92, 71.24, 76.07),
        "DASALC: SDR's teacher": (72.77, 70.06, 75.30),
        "SDR": (72.97, 70.24, 75.47),
        "DASALC-ens": (74.40, 71.32, 76.44),
        "SDR-ens": (74.51, 71.51, 76.56),
    },
}
# Table 2, Web30K
PAPER_POINTWISE_OR_LISTWISE: Mapping[str, Row] = {
    "pointwise teacher": (50.67, 50.70, 52.85),
    "pointwise teacher, pointwise distillation": (50.33, 50.47, 52.60),
    "pointwise teacher, listwise distillation": (50.88, 51.16, 53.26),
    "listwise teacher": (50.95, 50.92, 52.88),
    "listwise teacher, pointwise distillation": (49.78, 49.89, 52.02),
    "listwise teacher, listwise distillation (SDR)": (51.71, 51.56, 53.57),
}
# Table 3, Web30K: our alpha -> NDCG
PAPER_ALPHAS: Mapping[float, Row] = {
    1.0: (50.95, 50.92, 52.88),
    0.5: (51.71, 51.56, 53.57),
    0.0: (50.45, 50.53, 52.54),
}
