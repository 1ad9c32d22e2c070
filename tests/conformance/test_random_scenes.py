"""Random scenes of four clients, compared line by line on Headwater and on real servers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import scenes
from tests.conformance.random_scenes import RandomScene
from tests.conformance.scenes import LocalStage, PeerStage, Scene
from tests.peers import Peer

pytestmark = pytest.mark.peer


def unlike(scene: Scene, server: Peer) -> str:
    """Return the lines up to the first different reply, or an empty text."""
    ours = scenes.play(scene, LocalStage())
    stage = PeerStage(server)
    try:
        theirs = scenes.play(scene, stage)
    finally:
        stage.close()
    for at, (we, they) in enumerate(zip(ours, theirs, strict=True)):
        if we != they:
            lines = [f"{said.client}: {b' '.join(said.words).decode()}" for said in scene.lines]
            return "\n".join([*lines[: at + 1], f"    we:   {we}", f"    they: {they}"])
    return ""


@pytest.mark.parametrize("server", ["redis-8.2", "valkey-9.1"])
@pytest.mark.parametrize("seed", range(3))
def test_four_clients_get_the_same_replies_as_from_the_server(
    seed: int, server: str, shared_peer: Callable[[str], Peer]
) -> None:
    found = unlike(RandomScene(seed, server).scene(250), shared_peer(server))
    assert not found, found


@pytest.mark.slice
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_scenes_give_the_same_replies(seed: int, shared_peer: Callable[[str], Peer]) -> None:
    found = unlike(RandomScene(seed, "redis-8.2").scene(600), shared_peer("redis-8.2"))
    assert not found, found
