"""The bytes of entries in compressed and stored blocks: codecs, blobs, and the cache of opened ones.

It sees only bytes and the offsets of entries in them. It imports no other room. Start with sealed_block.py.
"""
