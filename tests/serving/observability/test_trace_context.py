"""traceparent, by the examples and rules of W3C Trace Context."""

import pytest

from serving.observability.trace_context import span_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_callers_trace_continues_with_a_new_span() -> None:
    span = span_of(f"00-{TRACE}-{PARENT}-01")
    assert (span.trace_id, span.flags) == (TRACE, "01")
    assert span.span_id != PARENT
    assert (span.parent_id, span.is_recorded) == (PARENT, True)
    assert span.traceparent == f"00-{TRACE}-{span.span_id}-01"


def test_a_later_version_may_have_more_fields() -> None:
    assert span_of(f"cc-{TRACE}-{PARENT}-01-what-comes-later").trace_id == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_an_invalid_traceparent_begins_an_unsampled_trace(header: str) -> None:
    span = span_of(header)
    assert span.trace_id != TRACE
    assert len(span.trace_id) == 32
    assert span.flags == "00"
    assert span_of(header).trace_id != span.trace_id


def test_a_share_of_new_traces_is_recorded_and_no_callers_flag_changed() -> None:
    assert {span_of("", share_of_new=1.0).flags for _ in range(20)} == {"01"}
    assert {span_of("", share_of_new=0.5).flags for _ in range(100)} == {"00", "01"}
    assert not span_of(f"00-{TRACE}-{PARENT}-00", share_of_new=1.0).is_recorded
