"""A flipped bit in any file of a store, and a file that ends anywhere, is never a silent loss."""

from __future__ import annotations

from functools import partial

import pytest

from tests.crash.campaign import flipped, flips, sample
from tests.crash.flip_campaign import FILES, FlipCampaign
from tests.samples import sampled


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_a_flipped_bit_is_an_error_or_reported_or_harmless(seed: int) -> None:
    # Given a store that has stopped cleanly (seed 0), or was killed (seed 2)
    campaign = FlipCampaign(seed, trials=400)
    # When any bit of its files is flipped, then nothing is silent
    done = campaign.run()
    assert done.stopped == (seed == 0)
    assert done.failures == []
    # And all four kinds of file were concerned
    for kind in FILES:
        assert sum(n for what, n in done.outcomes.items() if what.startswith(kind)) == 100
    assert done.outcomes["MANIFEST: refused"] == 100
    assert done.outcomes["image: refused"] == 100
    assert done.outcomes["segment: bodies that cannot be read"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2])
def test_a_file_that_is_cut_at_any_byte_is_an_error_or_reported_or_harmless(seed: int) -> None:
    # When the newest file of each kind ends at any byte, then nothing is silent
    done = FlipCampaign(seed).cuts()
    assert done.failures == []
    # And a cut MANIFEST or image is always refused
    assert not any(what.startswith(("MANIFEST: whole", "image: whole")) for what in done.outcomes)
    assert done.outcomes.total() > 1000
    # And the tail of a store that was killed is an earlier state, and reported
    if not done.stopped:
        assert done.outcomes["journal: an earlier state, reported"] > 10


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_many_flipped_bits_lose_nothing_silently() -> None:
    outcome = sample("flips", sampled(2), partial(flips, trials=1000))
    assert outcome.failures == []
    assert outcome.trials == 1000 * sampled(2)


@pytest.mark.slice
@pytest.mark.timeout(300)
def test_servers_with_a_flipped_bit_lose_nothing_silently() -> None:
    outcome = sample("flipped", 1, partial(flipped, trials=10))
    assert outcome.failures == []
    assert outcome.trials == 10
