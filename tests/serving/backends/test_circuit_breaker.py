"""The circuit breaker, on a clock that stands still."""

from serving.circuit import Circuit


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def circuit(failures: int = 2) -> tuple[Circuit, Clock]:
    clock = Clock()
    return Circuit(failures, open_seconds=5.0, clock=clock), clock


def fail(circuit: Circuit, times: int) -> None:
    for _ in range(times):
        assert circuit.enter() == 0
        circuit.leave(False)


def test_it_opens_after_failures_in_a_row_and_tells_for_how_long() -> None:
    breaker, clock = circuit()
    fail(breaker, 1)
    assert breaker.state == "closed"
    fail(breaker, 1)
    assert (breaker.state, breaker.enter()) == ("open", 5.0)
    clock.now += 4.0
    assert (breaker.state, breaker.enter()) == ("open", 1.0)


def test_an_answer_between_two_failures_starts_the_row_anew() -> None:
    breaker, _ = circuit()
    for _ in range(3):
        fail(breaker, 1)
        breaker.leave(True)
    assert breaker.state == "closed"


def test_half_open_lets_one_call_try_and_its_answer_closes_it() -> None:
    breaker, clock = circuit()
    fail(breaker, 2)
    clock.now += 5.0
    assert breaker.state == "half-open"
    assert breaker.enter() == 0
    assert breaker.enter() == 5.0  # another one, meanwhile
    breaker.leave(True)
    assert (breaker.state, breaker.enter()) == ("closed", 0)


def test_a_try_that_fails_opens_it_again_at_once() -> None:
    breaker, clock = circuit()
    fail(breaker, 2)
    clock.now += 5.0
    fail(breaker, 1)
    assert (breaker.state, breaker.enter()) == ("open", 5.0)


def test_a_call_in_too_much_haste_counts_for_nothing_and_lets_the_next_one_try() -> None:
    breaker, clock = circuit(failures=1)
    breaker.leave(None)
    assert breaker.state == "closed"
    fail(breaker, 1)
    clock.now += 5.0
    for _ in range(2):
        assert breaker.enter() == 0
        breaker.leave(None)
    assert breaker.state == "half-open"
