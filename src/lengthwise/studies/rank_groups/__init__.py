"""The processes that compute one run together: those that a worker starts, and those that torchrun has started."""

from lengthwise.studies.rank_groups.base import RankDied, RankGroup
from lengthwise.studies.rank_groups.spawned import SpawnedRanks

__all__ = ["RankDied", "RankGroup", "SpawnedRanks"]
