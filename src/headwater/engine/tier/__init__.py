"""Chooses the blocks of entries that stay hot, are sealed (compressed), stored in segments, and warmed again.

It decides; threads of the server compress and write. It imports entries and bodies. Start with sealing.py.
"""
