"""How a process shows that it lives: it renews what it owns, or its supervisor does so for it.

It imports store and declare. Start with lease.py.
"""
