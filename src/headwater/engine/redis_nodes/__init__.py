"""The nodes into which Redis would have packed the entries: XTRIM ~ and MEMORY USAGE depend on them.

It sees only the ids and sizes of entries. It imports `headwater.engine.accounts`. Start with nodes.py.
"""
