"""The nodes into which Redis would have packed the entries: XTRIM ~, XINFO and DUMP depend on them.

It sees only the ids and sizes of entries. It imports `headwater.engine.accounts`. Start with nodes.py.
"""
