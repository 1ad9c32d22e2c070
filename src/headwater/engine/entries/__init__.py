"""The entries of a stream, stored as the bytes of their replies in blocks.

It imports `headwater.engine.bodies`. Start with entry_log.py, which has the blocks; entry_block.py has the states of
one block.
"""
