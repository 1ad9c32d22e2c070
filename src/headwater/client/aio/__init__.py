"""The clients for asyncio: as in `headwater.client.sync`, over ``redis.asyncio``."""
