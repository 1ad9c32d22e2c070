"""The bytes of entries in compressed and stored blocks: codecs, blobs, and the cache of opened ones.

It knows no entry, only bytes and where an entry begins in them. It imports no other room. Start with sealed_block.py.
"""
