"""Runs the scenes of plays/*.txt on Headwater and on every server: blocking, waking, order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance import differences, scenes
from tests.conformance.scenes import LocalStage, PeerStage, Scene
from tests.peers import PEERS, Peer

pytestmark = pytest.mark.peer

SCENES = scenes.all_scenes()
ON_SERVERS = [(scene, server) for server in PEERS for scene in SCENES if server in scene.servers]
PLAYED = [
    pytest.param(
        scene,
        server,
        id=f"{server}-{scene.file}: {scene.title}",
        # Ordinary runs use one server: all wake clients alike, except where a scene says otherwise.
        marks=() if server == "redis-8.2" else pytest.mark.slow,
    )
    for scene, server in ON_SERVERS
]


@pytest.mark.parametrize("resp", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize(("scene", "server"), PLAYED)
def test_every_client_gets_the_same_replies_as_from_the_server(
    scene: Scene, server: str, resp: int, shared_peer: Callable[[str], Peer]
) -> None:
    assert not (wrong := disagreements(scene, shared_peer(server), resp)), "\n".join(wrong)


def disagreements(scene: Scene, peer: Peer, resp: int) -> list[str]:
    """Return the lines after which a client has received something different, and those with a known
    difference that do not differ."""
    ours = scenes.play(scene, LocalStage(resp=resp))
    stage = PeerStage(peer, resp=resp)
    try:
        theirs = scenes.play(scene, stage)
    finally:
        stage.close()
    wrong = []
    for line, we, they in zip(scene.lines, ours, theirs, strict=True):
        text = f"line {line.number}: {line.client}: {b' '.join(line.words).decode(errors='backslashreplace')}"
        known = line.tag and peer.name in differences.LINES[line.tag].servers
        if known and we == they:
            wrong.append(f"{text}: no longer differs ({line.tag})")
        elif not known and we != they:
            wrong.append(f"{text}\n    we:   {we}\n    they: {they}")
    return wrong
