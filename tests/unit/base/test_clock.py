from hypothesis import given
from hypothesis import strategies as st

from brokerdrill.base.clock import Sample, estimate

WAIT = st.integers(0, 50_000_000)


@given(offset=st.integers(-(10**15), 10**15), waits=st.lists(st.tuples(WAIT, WAIT), min_size=1, max_size=20))
def test_the_true_offset_lies_within_the_uncertainty(offset: int, waits: list[tuple[int, int]]) -> None:
    """However unequal the way there and back, the estimate errs by no more than it says."""
    samples = []
    now = 10**16
    for there, back in waits:
        samples.append(Sample(now, now + there - offset, now + there + back))
        now += there + back + 1000
    clock = estimate(samples)
    assert abs(clock.offset_ns - offset) <= clock.uncertainty_ns + 1


def test_the_quickest_answer_is_the_one_that_counts() -> None:
    clock = estimate([Sample(0, 500, 10_000), Sample(20_000, 20_010, 20_020)])
    assert (clock.offset_ns, clock.uncertainty_ns) == (0, 10)
