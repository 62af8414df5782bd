"""Features that logs fill, and the types and levels that they must have. Pure: no Beam."""

from beam_jobs.sources.native_log import INTERACTIONS
from features.errors import InputError
from features.spec import FeatureSpec

# Names that logs fill, by level. A value of that name in an item's features or product row is ignored.
CONTEXT_NAMES = ("request_id", "query")
ITEM_NAMES = ("item_id", "position", *INTERACTIONS)


def check_log_features(spec: FeatureSpec) -> None:
    """Errors: InputError when a feature's type or level does not match what logs provide."""
    for feature in spec:
        name = feature.name
        level = "context" if name in CONTEXT_NAMES else "item" if name in ITEM_NAMES else feature.level
        if feature.level != level:
            raise InputError(
                f"features.{name}: level {feature.level}, but logs give it at level {level}: correct its level"
            )
        numeric = name in ITEM_NAMES and name != "item_id"
        if (numeric and (not feature.is_numeric or feature.length > 1)) or (
            name == "item_id" and feature.type not in ("text", "categorical")
        ):
            expected = "int, float or bool" if numeric else "text or categorical"
            raise InputError(f"features.{name}: type {feature.type}, but logs give it as {expected}: correct its type")
        if name in CONTEXT_NAMES and feature.type != "text":
            raise InputError(
                f"features.{name}: type {feature.type}, expected text: the values of a categorical feature are listed "
                "in manifests and models, and those of a request may be personal. Make its type text"
            )
    if "position" in spec and spec["position"].type == "bool":
        raise InputError("features.position: type bool, but logs give it as int: correct its type")
