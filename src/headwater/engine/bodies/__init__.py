"""The bytes of entries in compressed and stored blocks: codecs, blobs, and the cache of opened blocks.

It sees only bytes and offsets of entries in them, and imports no other package of the engine. See sealed_block.py.
"""
