"""The circuit breaker, with a clock that the tests advance."""

from serving.backends.circuit_breaker import CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def circuit(failures: int = 2) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    return CircuitBreaker(failures, open_seconds=5.0, clock=clock), clock


def fail(circuit: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        assert circuit.begin_call() == 0
        circuit.end_call(False)


def test_it_opens_after_consecutive_failures_and_returns_the_wait() -> None:
    breaker, clock = circuit()
    fail(breaker, 1)
    assert breaker.state == "closed"
    fail(breaker, 1)
    assert (breaker.state, breaker.begin_call()) == ("open", 5.0)
    clock.now += 4.0
    assert (breaker.state, breaker.begin_call()) == ("open", 1.0)


def test_an_answer_resets_the_count_of_failures() -> None:
    breaker, _ = circuit()
    for _ in range(3):
        fail(breaker, 1)
        breaker.end_call(True)
    assert breaker.state == "closed"


def test_half_open_admits_one_trial_call_whose_answer_closes_it() -> None:
    breaker, clock = circuit()
    fail(breaker, 2)
    clock.now += 5.0
    assert breaker.state == "half-open"
    assert breaker.begin_call() == 0
    assert breaker.begin_call() == 5.0  # a second call during the trial
    breaker.end_call(True)
    assert (breaker.state, breaker.begin_call()) == ("closed", 0)


def test_a_failed_trial_call_opens_it_again_at_once() -> None:
    breaker, clock = circuit()
    fail(breaker, 2)
    clock.now += 5.0
    fail(breaker, 1)
    assert (breaker.state, breaker.begin_call()) == ("open", 5.0)


def test_a_call_with_too_short_a_timeout_does_not_count_and_admits_another_trial() -> None:
    breaker, clock = circuit(failures=1)
    breaker.end_call(None)
    assert breaker.state == "closed"
    fail(breaker, 1)
    clock.now += 5.0
    for _ in range(2):
        assert breaker.begin_call() == 0
        breaker.end_call(None)
    assert breaker.state == "half-open"
