"""Work of one process: correlation sums of a part of a LETOR file, or its shard of the dataset."""

import gzip
import io
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.joins.stable_hash import Hash64
from beam_jobs.letor.files import FilePart, read_documents, read_documents_with
from beam_jobs.letor.lines import JudgedGroup, LineReader, group_documents
from beam_jobs.letor.privilege import Correlations, FeatureSplit
from beam_jobs.letor.protocol import LetorProtocol, signed_log1p
from beam_jobs.storage.files import join_path
from beam_jobs.storage.tfrecords import record_writer
from beam_jobs.transforms.statistics import SplitTally
from features.elwc import GroupColumns, GroupEncoder, View
from features.spec import FeatureSpec

_Bools = np.ndarray[Any, np.dtype[np.bool_]]


class LetorShard(NamedTuple):
    """A part of a file and its output: shard `number` (from 0) of `shards` in a split."""

    part: FilePart
    split: str
    number: int
    shards: int

    def path(self, directory: str, view: View) -> str:
        return join_path(directory, self.split, f"{view}_elwc-{self.number:05d}-of-{self.shards:05d}.tfrecord.gz")


class ConversionResult:
    """Counts and statistics of one converted shard, or of all shards of a split."""

    def __init__(self, spec: FeatureSpec) -> None:
        self.tally = SplitTally(spec)
        self.queries: list[str] = []  # of every group read, in file order
        self.counts: Counter[str] = Counter()  # 'read/group', 'no_relevance/group', 'read/document', ...
        self.relevance = b""  # gzipped lines: query, item_id, relevance
        self.named: _Bools | None = None  # bool [features]: features that a line names; None: nothing read

    def merge(self, other: "ConversionResult") -> None:
        self.tally.merge(other.tally)
        self.queries += other.queries
        self.counts.update(other.counts)
        self.relevance += other.relevance  # concatenated gzip files are one gzip file
        if other.named is not None:
            self.named = other.named if self.named is None else self.named | other.named


def correlate_part(protocol: LetorProtocol, part: FilePart) -> Correlations:
    """Correlation sums over the part's eligible groups. Errors: InputError."""
    found = Correlations(protocol.features)
    for group in group_documents(read_documents(part, protocol.features)):
        if protocol.left_out_reason(group) is None:
            found.add(signed_log1p(group.values), protocol.labels(group))
    return found


def convert_shard(protocol: LetorProtocol, chosen: FeatureSplit, directory: str, shard: LetorShard) -> ConversionResult:
    """Writes both views of the shard in one pass, so that they hold the same groups in the same order.

    Errors: InputError.
    """
    found = ConversionResult(protocol.spec)
    relevance = io.BytesIO()
    encoder = GroupEncoder(protocol.spec, "training", "serving")
    with (
        record_writer(shard.path(directory, "training")) as write_training,
        record_writer(shard.path(directory, "serving")) as write_serving,
        gzip.GzipFile("", "wb", fileobj=relevance, mtime=0) as relevance_lines,
    ):
        for judged in _eligible_groups(protocol, shard.part, found):
            group = _in_hash_order(judged, protocol.seed)
            columns = _feature_columns(group, protocol, chosen)
            _add_statistics(found.tally, group.query, columns)
            encoded = GroupColumns({"query": group.query}, _value_lists(columns), len(group.item_ids))
            (training,), (serving,) = encoder.encode([encoded])
            write_training(training)
            write_serving(serving)
            relevance_lines.write(_relevance_table_lines(group))
    found.relevance = relevance.getvalue()
    return found


def _eligible_groups(protocol: LetorProtocol, part: FilePart, found: ConversionResult) -> Iterator[JudgedGroup]:
    """Yields the groups that the protocol uses; counts all groups in `found`."""
    reader = LineReader(protocol.features)
    found.named = reader.named
    for group in group_documents(read_documents_with(reader, part)):
        reason = protocol.left_out_reason(group)
        found.queries.append(group.query)
        for fate in ("read", reason) if reason else ("read",):
            found.counts.update({f"{fate}/group": 1, f"{fate}/document": len(group.item_ids)})
        if reason is None:
            yield group


def _in_hash_order(group: JudgedGroup, seed: int) -> JudgedGroup:
    """The group with its documents ordered by hash, so that the order reveals nothing about them."""
    hashed = Hash64("order", seed, group.query)
    order = sorted(range(len(group.item_ids)), key=lambda index: hashed.of(group.item_ids[index]))
    item_ids = [group.item_ids[index] for index in order]
    return JudgedGroup(group.query, item_ids, group.relevance[order], group.values[order])


def _feature_columns(group: JudgedGroup, protocol: LetorProtocol, chosen: FeatureSplit) -> dict[str, Any]:
    """Feature name -> values of the group's items: list or array [n], float32 [n, length] for vectors."""
    values = signed_log1p(group.values)
    tau = protocol.options.privileged_tau
    return {
        "item_id": group.item_ids,
        **{name: values[:, np.array(ids) - 1] for name, ids in chosen._asdict().items() if ids},
        **({} if tau is None else {"privileged": protocol.draw_labels(group, tau)}),
        "label": protocol.labels(group),
    }


def _value_lists(columns: dict[str, Any]) -> dict[str, list[Any]]:
    """Columns as lists of values in the form of `features.values.check_value`: a vector is a tuple."""
    lists = {name: column if isinstance(column, list) else column.tolist() for name, column in columns.items()}
    return {name: list(map(tuple, found)) if np.ndim(columns[name]) > 1 else found for name, found in lists.items()}


def _add_statistics(tally: SplitTally, query: str, columns: dict[str, Any]) -> None:
    tally.groups += 1
    tally.groups_with_label += bool(columns["label"].any())
    tally.items += len(columns["label"])
    tally.features["query"].add([query])
    for name, column in columns.items():
        tally.features[name].add(column)


def _relevance_table_lines(group: JudgedGroup) -> bytes:
    """The group's rows of the relevance table: query, item_id, relevance."""
    rows = zip(group.item_ids, group.relevance.tolist(), strict=True)
    return "".join(f"{group.query}\t{item_id}\t{relevance}\n" for item_id, relevance in rows).encode()
