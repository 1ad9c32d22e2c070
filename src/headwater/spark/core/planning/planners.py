"""The planner for a server."""

from __future__ import annotations

from headwater.spark.core.planning.lua_planning import LuaPlanner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.planning.split_planning import SplitPlanner
from headwater.spark.core.store import SourceStore


def planner(store: SourceStore) -> Planner:
    """Return the planner for the commands that the server supports."""
    return SplitPlanner(store) if store.splits else LuaPlanner(store)
