"""The command line of the harness, its draws, and a short trial on 127.0.0.1."""

from __future__ import annotations

import random

import pytest

from tests import peers
from tests.failover import campaign, faults
from tests.failover.campaign import Count
from tests.failover.judge import Window
from tests.failover.members import Setup
from tests.failover.trial import Trial, Verdict


def test_a_seed_draws_the_same_faults() -> None:
    def draw(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [faults.drawn(rng, faults.FAULTS).name for _ in range(50)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_faults_can_be_chosen_by_their_names() -> None:
    assert {one.name for one in faults.chosen(only="FAILOVER")} == {"FAILOVER", "SENTINEL FAILOVER"}
    assert [one.name for one in faults.chosen(only="FAILOVER", without="SENTINEL")] == ["FAILOVER"]
    with pytest.raises(ValueError, match="flood"):
        faults.chosen(only="flood")


def test_names_of_faults_are_unique_and_each_has_a_description() -> None:
    assert len({one.name for one in faults.FAULTS}) == len(faults.FAULTS)
    assert all(one.play.__doc__ for one in faults.FAULTS)


def test_the_name_of_a_setup_tells_what_is_judged() -> None:
    ours = Setup("headwater", fsync="always", synchronous=1, sentinel="valkey-9.1")
    assert ours.name == "headwater, fsync always, synchronous 1, Sentinel valkey-9.1"
    assert ours.watcher == "valkey-9.1"
    assert Setup("headwater").watcher == "redis-8.2"
    assert (
        Setup("valkey-9.1", min_replicas=1, wait=1).name
        == "valkey-9.1, fsync everysec, min-replicas 1, WAIT 1"
    )


def test_a_run_has_an_outcome_for_each_count() -> None:
    count = Count(Setup("headwater"), 7)
    verdict = Verdict()
    verdict.windows.extend([faults_window("FAILOVER"), faults_window("FAILOVER")])
    verdict.counts["lost answered writes"] = 3
    verdict.lost["FAILOVER"] = 3
    verdict.failures.append("planted")
    count.add(7, verdict)
    count.add(8, Verdict())
    outcomes = {one.unit: one for one in count.outcomes()}
    assert outcomes["failovers"].trials == 2
    assert outcomes["failovers"].seeds == (7, 8)
    assert outcomes["failovers"].failures == ["seed 7: planted"]
    assert outcomes["lost answered writes"].trials == 3
    assert outcomes["lost answered writes"].failures == []
    assert "lost 3 at: FAILOVER" in count.summary()


def faults_window(name: str) -> Window:
    return Window(name, 0.0, 1.0)


def test_servers_other_than_ours_have_no_synchronous_replicas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["failover", "--server", "redis-8.2", "--synchronous", "1"])
    with pytest.raises(SystemExit):
        campaign.main()
    assert "--synchronous is a setting of headwater" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.clusters
def test_a_short_trial_without_namespaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    if peers.path("redis-8.2") is None:
        pytest.skip(str(peers.PeerMissing("redis-8.2")))
    monkeypatch.chdir(str(tmp_path))
    trial = Trial(
        Setup("redis-8.2"),
        seed=1,
        count=1,
        loopback=True,
        faults=faults.chosen(only="kill a replica"),
    )
    verdict = trial.run()
    assert verdict.failures == []
    assert verdict.counts["answered writes"] > 100
    assert verdict.counts["lost answered writes"] == 0
    assert len(verdict.windows) == 1
