"""The clients for asyncio: `headwater.client.sync`, over ``redis.asyncio``."""
