"""One part of a LETOR file -> its sums for the correlations, or its shard of the dataset: what a process does."""

import gzip
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.dataset_statistics import SplitTally
from beam_jobs.letor import JudgedGroup, groups_of
from beam_jobs.letor_files import Part, read_documents
from beam_jobs.letor_privilege import Correlations, FeatureSplit
from beam_jobs.letor_protocol import LetorProtocol, log1p
from beam_jobs.query_groups import Hash64
from beam_jobs.storage import join
from beam_jobs.tfrecords import record_writer
from features.elwc import GroupColumns, GroupEncoder, View
from features.spec import FeatureSpec


class Shard(NamedTuple):
    """A part, and where its groups go: a split's shard `number`, from 0, of `shards`."""

    part: Part
    split: str
    number: int
    shards: int

    def path(self, directory: str, view: View) -> str:
        return join(directory, self.split, f"{view}_elwc-{self.number:05d}-of-{self.shards:05d}.tfrecord.gz")


class Converted:
    """What was found while a shard was written, or all shards of a split."""

    def __init__(self, spec: FeatureSpec) -> None:
        self.tally = SplitTally(spec)
        self.queries: list[str] = []  # of every group read, in file order
        self.counts: Counter[str] = Counter()  # 'read/group', 'no_relevance/group', 'read/document', ...
        self.relevance = b""  # gzipped lines: query, item_id, relevance

    def merge(self, other: "Converted") -> None:
        self.tally.merge(other.tally)
        self.queries += other.queries
        self.counts.update(other.counts)
        self.relevance += other.relevance  # gzip files may follow one another in one


def correlate(protocol: LetorProtocol, part: Part) -> Correlations:
    """The sums of the part's groups that stay. Errors: InputError."""
    found = Correlations(protocol.features)
    for group in groups_of(read_documents(part, protocol.features)):
        if protocol.left_out(group) is None:
            found.add(log1p(group.values), protocol.labels(group))
    return found


def convert(protocol: LetorProtocol, chosen: FeatureSplit, directory: str, shard: Shard) -> Converted:
    """Writes both views of the shard together, so that they hold the same groups in the same order.

    Errors: InputError.
    """
    found = Converted(protocol.spec)
    relevance = io.BytesIO()
    encoder = GroupEncoder(protocol.spec, "training", "serving")
    with (
        record_writer(shard.path(directory, "training")) as write_training,
        record_writer(shard.path(directory, "serving")) as write_serving,
        gzip.GzipFile("", "wb", fileobj=relevance, mtime=0) as relevance_lines,
    ):
        for judged in kept(protocol, shard.part, found):
            group = in_hash_order(judged, protocol.seed)
            columns = columns_of(group, protocol, chosen)
            add_statistics(found.tally, group.query, columns)
            encoded = GroupColumns({"query": group.query}, values_of(columns), len(group.item_ids))
            (training,), (serving,) = encoder.encode([encoded])
            write_training(training)
            write_serving(serving)
            relevance_lines.write(relevance_of(group))
    found.relevance = relevance.getvalue()
    return found


def kept(protocol: LetorProtocol, part: Part, found: Converted) -> Iterator[JudgedGroup]:
    """The part's groups that stay; `found` counts all of them."""
    for group in groups_of(read_documents(part, protocol.features)):
        reason = protocol.left_out(group)
        found.queries.append(group.query)
        for fate in ("read", reason) if reason else ("read",):
            found.counts.update({f"{fate}/group": 1, f"{fate}/document": len(group.item_ids)})
        if reason is None:
            yield group


def in_hash_order(group: JudgedGroup, seed: int) -> JudgedGroup:
    """The group with its documents in an order that says nothing of them."""
    hashed = Hash64("order", seed, group.query)
    order = sorted(range(len(group.item_ids)), key=lambda place: hashed.of(group.item_ids[place]))
    item_ids = [group.item_ids[place] for place in order]
    return JudgedGroup(group.query, item_ids, group.relevance[order], group.values[order])


def columns_of(group: JudgedGroup, protocol: LetorProtocol, chosen: FeatureSplit) -> dict[str, Any]:
    """The group's items by feature: lists or arrays [n], vectors float32 [n, length]."""
    values = log1p(group.values)
    tau = protocol.options.privileged_tau
    return {
        "item_id": group.item_ids,
        **{name: values[:, np.array(ids) - 1] for name, ids in chosen._asdict().items() if ids},
        **({} if tau is None else {"privileged": protocol.drawn(group, tau)}),
        "label": protocol.labels(group),
    }


def values_of(columns: dict[str, Any]) -> dict[str, list[Any]]:
    """Columns of values as `features.values.check_value` returns them: a vector is a tuple."""
    lists = {name: column if isinstance(column, list) else column.tolist() for name, column in columns.items()}
    return {name: list(map(tuple, found)) if np.ndim(columns[name]) > 1 else found for name, found in lists.items()}


def add_statistics(tally: SplitTally, query: str, columns: dict[str, Any]) -> None:
    tally.groups += 1
    tally.groups_with_label += bool(columns["label"].any())
    tally.items += len(columns["label"])
    tally.features["query"].add([query])
    for name, column in columns.items():
        tally.features[name].add(column)


def relevance_of(group: JudgedGroup) -> bytes:
    """The group's lines of a relevance table: query, item_id, relevance."""
    rows = zip(group.item_ids, group.relevance.tolist(), strict=True)
    return "".join(f"{group.query}\t{item_id}\t{relevance}\n" for item_id, relevance in rows).encode()
