"""The state: streams, groups, pending entries, keys. Pure: no file, no clock, no chance, no socket.

What happens to it is written down by the mutators themselves (`facts`), and applied again from
there when a store is opened.
"""
