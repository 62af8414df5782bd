"""Finds the nodes and functions of a SavedModel that reach given operations, directly or indirectly."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Vertex = tuple[str, str]
"""("node", name) of the main graph, or ("function", name) of its library."""


@dataclass(frozen=True, slots=True)
class GraphTrace:
    """The reversed edges of a MetaGraphDef: from functions to callers, from nodes to consumers of their outputs.

    All outputs of a node, with its control output, are one vertex, so that no Identity or control input hides it.
    """

    holders: dict[str, set[Vertex]]  # operation -> the vertices that contain it
    users: dict[Vertex, set[Vertex]]

    def reaching(self, operations: Iterable[str]) -> set[Vertex]:
        """Returns every vertex that would run one of the operations: it contains it, calls it or depends on it."""
        reached: set[Vertex] = set()
        waiting = [vertex for operation in operations for vertex in self.holders.get(operation, ())]
        while waiting:
            vertex = waiting.pop()
            if vertex not in reached:
                reached.add(vertex)
                waiting += self.users.get(vertex, ())
        return reached


def trace_of(graph: Any, operations: Collection[str]) -> GraphTrace:
    """Traces a MetaGraphDef. operations: all those that `reaching` may be called with."""
    library = {function.signature.name: function.node_def for function in graph.graph_def.library.function}
    trace = GraphTrace({}, {})
    for node in graph.graph_def.node:
        vertex = ("node", node.name)
        _add(trace, node, vertex, library, operations)
        for name in node.input:
            trace.users.setdefault(("node", node_of(name)), set()).add(vertex)
    for function, nodes in library.items():
        for node in nodes:
            _add(trace, node, ("function", function), library, operations)
    return trace


def _add(trace: GraphTrace, node: Any, vertex: Vertex, library: Collection[str], operations: Collection[str]) -> None:
    if node.op in operations:
        trace.holders.setdefault(node.op, set()).add(vertex)
    for called in functions_called_by(node, library):
        trace.users.setdefault(("function", called), set()).add(vertex)


def functions_called_by(node: Any, library: Collection[str]) -> Iterator[str]:
    """Yields the functions that a node calls, as its operation or by an attribute (PartitionedCall, If, Case)."""
    if node.op in library:
        yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)


def node_of(tensor_name: str) -> str:
    """Returns the node's name from `name`, `name:0` or `^name`."""
    return tensor_name.removeprefix("^").split(":", 1)[0]
