"""Facts: the records of all changes, as bytes, and their reader.

It imports no other package of the engine: `headwater.engine.replay` applies facts. Start with facts.py, which
lists every fact with its fields.
"""
