"""The models of the shop experiment, and Table 3 of Yang et al. 2022 beside them."""

from typing import Literal, NamedTuple

BASELINE, ORACLE = "no_distillation", "oracle"


class Row(NamedTuple):
    """A model here, and its NDCG@8, @16 and @32 in the paper's Table 3, over the baseline's."""

    label: str
    kind: Literal["reference", "student", "teacher"]
    paper: tuple[float, float, float] | None = None


ROWS = {
    "random_order": Row("random order", "reference"),
    "bm25": Row("BM25", "reference"),
    BASELINE: Row("no-distillation", "student", (1.0, 1.0, 1.0)),
    "pretrained_on_click": Row("pretrained on click", "student", (1.043, 1.035, 1.031)),
    "pretrained_then_tuned": Row("pretrained on click, fine-tuned", "student", (1.077, 1.060, 1.054)),
    "pretrained_on_add": Row("pretrained on add", "student", (1.058, 1.046, 1.042)),
    "pretrained_on_add_then_tuned": Row("pretrained on add, fine-tuned", "student", (1.059, 1.045, 1.041)),
    "teacher_self": Row("teacher without privilege", "teacher", (1.0, 1.0, 1.0)),
    "self_distillation": Row("self-distilled student", "student", (1.028, 1.021, 1.019)),
    "teacher_position": Row("teacher position", "teacher", (1.182, 1.135, 1.121)),
    "from_position": Row("student of position", "student", (1.078, 1.057, 1.051)),
    "teacher_click": Row("teacher click", "teacher", (2.121, 1.902, 1.827)),
    "from_click": Row("student of click", "student", (1.082, 1.064, 1.057)),
    "teacher_add": Row("teacher add", "teacher", (2.292, 2.053, 1.972)),
    "from_add": Row("student of add", "student", (1.073, 1.056, 1.051)),
    "equal_weights": Row("student of all three", "student", (1.112, 1.085, 1.077)),
    "student": Row("student of all three, weighted", "student"),
    ORACLE: Row("oracle (true relevance)", "reference"),
}
