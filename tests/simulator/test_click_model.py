import numpy as np
import pytest
from pydantic import ValidationError

from simulator.click_model import (
    Behaviour,
    BehaviourConfig,
    Curve,
    Delay,
    ExaminationConfig,
    RankerConfig,
    before_first,
    examination,
    shown_order,
    simulate_behaviour,
)
from simulator.shop import NO_ITEM, Candidates, UtilityConfig

REQUESTS = 20_000
ALWAYS = Curve(floor=1.0, ceiling=1.0, midpoint=0.0, steepness=1.0)
NEVER = Curve(floor=0.0, ceiling=0.0, midpoint=0.0, steepness=1.0)
EXAMINE_ALL = ExaminationConfig(decay=0.0, stop_after_add=0.0)


def candidates(utilities: list[float], requests: int = 1, missing: int = 0) -> Candidates:
    """The same utilities in each request, the last `missing` of them no items."""
    items = np.arange(len(utilities))
    items[len(utilities) - missing :] = NO_ITEM
    return Candidates(
        items=np.tile(items, (requests, 1)),
        grades=np.zeros((requests, len(utilities)), dtype=np.int64),
        utilities=np.tile(np.array(utilities), (requests, 1)),
    )


def run(shown: Candidates, **fields: object) -> Behaviour:
    config = BehaviourConfig(**{"ranker": RankerConfig(noise=0.0), **fields})  # type: ignore[arg-type]
    return simulate_behaviour(shown, np.zeros(shown.items.shape), config, np.random.default_rng(3))


def test_examination_is_a_power_of_the_position():
    assert examination(4, ExaminationConfig(decay=1.0)) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert examination(4, ExaminationConfig(decay=0.5)) == pytest.approx([1, 2**-0.5, 3**-0.5, 1 / 2])


def test_curve_is_half_way_at_its_midpoint_and_flat_far_from_it():
    curve = Curve(floor=0.1, ceiling=0.5, midpoint=0.6, steepness=10.0)
    assert curve.probability(np.array([0.6, -9.0, 9.0])) == pytest.approx([0.3, 0.1, 0.5])
    # one unit of steepness * (x - midpoint) above: 0.1 + 0.4 / (1 + exp(-1))
    assert curve.probability(np.array([0.7])) == pytest.approx([0.1 + 0.4 * 0.7310585786])


def test_curve_that_falls_is_refused():
    with pytest.raises(ValidationError, match=r"ceiling 0\.1 is below floor 0\.5"):
        Curve(floor=0.5, ceiling=0.1, midpoint=0.0, steepness=1.0)


def test_utility_is_base_plus_share_of_the_bonus():
    utility = UtilityConfig(base=(0.0, 0.1, 0.4, 1.0), share_bonus=(0.05, 0.1, 0.4, 0.0))
    grades, share = np.array([[0, 1, 2, 3]]), np.array([[1.0, 0.5, 0.25, 1.0]])
    assert utility.utilities(grades, share) == pytest.approx(np.array([[0.05, 0.15, 0.5, 1.0]]))


def test_utility_above_one_is_refused():
    with pytest.raises(ValidationError, match=r"grade 2: base 0\.8 and share_bonus 0\.4"):
        UtilityConfig(base=(0.0, 0.1, 0.8, 1.0))


def test_ranker_without_noise_sorts_by_the_weighted_sum():
    shown = candidates([0.2, 0.9, 0.5])
    overlap = np.array([[1.0, 0.0, 0.5]])
    # 1 * utility + 1 * overlap: 1.2, 0.9, 1.0
    config = RankerConfig(utility_weight=1.0, overlap_weight=1.0, noise=0.0)
    assert shown_order(shown, overlap, config, np.random.default_rng(0)).tolist() == [[0, 2, 1]]


def test_missing_items_are_last_and_get_no_interaction():
    shown = candidates([0.1, 0.2, 0.9, 0.9], requests=50, missing=2)
    behaviour = run(shown, examination=EXAMINE_ALL, click=ALWAYS, add_to_cart=ALWAYS, purchase=ALWAYS)
    assert behaviour.items.tolist() == [[1, 0, NO_ITEM, NO_ITEM]] * 50
    assert behaviour.click.tolist() == [[True, True, False, False]] * 50


def test_before_first_is_true_up_to_and_at_the_first_stop():
    stops = np.array([[False, True, False, True], [False, False, False, False]])
    assert before_first(stops).tolist() == [[True, True, False, False], [True, True, True, True]]


def test_a_shopper_who_stops_after_an_add_interacts_with_nothing_below():
    config = {"click": ALWAYS, "add_to_cart": ALWAYS, "purchase": ALWAYS}
    behaviour = run(candidates([0.9, 0.5, 0.1]), examination=ExaminationConfig(decay=0.0, stop_after_add=1.0), **config)
    assert behaviour.click.tolist() == behaviour.purchase.tolist() == [[True, False, False]]


def test_unexamined_items_are_not_clicked():
    far = ExaminationConfig(decay=1000.0, stop_after_add=0.0)
    behaviour = run(candidates([0.9, 0.5, 0.1], requests=100), examination=far, click=ALWAYS, add_to_cart=NEVER)
    assert behaviour.click.tolist() == [[True, False, False]] * 100


def test_only_clicked_items_are_added_and_only_added_ones_purchased():
    half = Curve(floor=0.5, ceiling=0.5, midpoint=0.0, steepness=1.0)
    shown = candidates([0.9, 0.5, 0.1], requests=2000)
    behaviour = run(shown, examination=EXAMINE_ALL, click=half, add_to_cart=half, purchase=half)
    assert not (behaviour.add_to_cart & ~behaviour.click).any()
    assert not (behaviour.purchase & ~behaviour.add_to_cart).any()
    rates = [events.mean() for events in (behaviour.click, behaviour.add_to_cart, behaviour.purchase)]
    assert rates == pytest.approx([1 / 2, 1 / 4, 1 / 8], abs=0.02)  # 6000 draws: a deviation of 0.0065 at most


def test_click_rate_is_examination_times_the_curve():
    curve = Curve(floor=0.0, ceiling=1.0, midpoint=0.5, steepness=4.0)
    behaviour = run(
        candidates([0.5] * 4, requests=REQUESTS),
        examination=ExaminationConfig(decay=0.7, stop_after_add=0.0),
        perception_noise=0.0,
        click=curve,
        add_to_cart=NEVER,
    )
    expected = [0.5 * (1 + position) ** -0.7 for position in range(4)]
    assert behaviour.click.mean(axis=0) == pytest.approx(expected, abs=0.015)  # 4 deviations of sqrt(1/4 / 20000)


def test_perception_noise_lowers_clicks_on_good_items_and_raises_them_on_bad_ones():
    step = Curve(floor=0.0, ceiling=1.0, midpoint=0.5, steepness=1000.0)
    shown = candidates([0.7, 0.3], requests=REQUESTS)
    certain = run(shown, examination=EXAMINE_ALL, perception_noise=0.0, click=step, add_to_cart=NEVER)
    assert certain.click.mean(axis=0).tolist() == [1.0, 0.0]
    noisy = run(shown, examination=EXAMINE_ALL, perception_noise=0.2, click=step, add_to_cart=NEVER)
    # P(N(0, 1) > -1) and P(N(0, 1) > 1)
    assert noisy.click.mean(axis=0) == pytest.approx([0.8413, 0.1587], abs=0.012)


def test_delays_without_spread_add_up():
    behaviour = run(
        candidates([0.9]),
        click_delay=Delay(median_seconds=10.0, sigma=0.0),
        add_delay=Delay(median_seconds=60.0, sigma=0.0),
        purchase_delay=Delay(median_seconds=600.0, sigma=0.0),
    )
    assert (behaviour.click_ms[0, 0], behaviour.add_ms[0, 0], behaviour.purchase_ms[0, 0]) == (10_000, 70_000, 670_000)


def test_purchases_follow_in_minutes_to_days():
    behaviour = run(candidates([0.9], requests=REQUESTS))
    hours = (behaviour.purchase_ms - behaviour.add_ms) / 3_600_000
    assert (behaviour.click_ms < behaviour.add_ms).all()
    assert (behaviour.add_ms < behaviour.purchase_ms).all()
    assert np.median(hours) == pytest.approx(0.5, rel=0.05)
    assert hours.max() > 48
