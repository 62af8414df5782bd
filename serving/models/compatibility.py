"""Checks whether a new model version accepts the requests of the previous version's clients."""

from features.spec import Feature, FeatureSpec


def breaking_change(old: FeatureSpec, new: FeatureSpec) -> str | None:
    """Returns the first reason why `new` may refuse a request that is valid for `old`, as text, or None."""
    before = {feature.name: feature for feature in old.regular}
    after = {feature.name: feature for feature in new.regular}
    for name, feature in before.items():
        if name not in after:
            return f"does not read feature {name!r}"
        if _kind(feature) != _kind(after[name]):
            return f"reads feature {name!r} as {_description(after[name])}, not as {_description(feature)}"
    for name, feature in after.items():
        if feature.default is None and (name not in before or before[name].default is not None):
            return f"needs feature {name!r}, which requests may leave out so far"
    if _bare_texts(old) != _bare_texts(new):
        return "takes a bare string for another feature"
    return None


def _kind(feature: Feature) -> tuple[str, str, int]:
    return feature.level, feature.type, feature.length


def _description(feature: Feature) -> str:
    length = f" of {feature.length}" if feature.length > 1 else ""
    return f"{feature.type}{length} of the {feature.level}"


def _bare_texts(spec: FeatureSpec) -> list[str]:
    return [f.name for f in spec.at("item", spec.regular) if f.is_text and f.default is None]
