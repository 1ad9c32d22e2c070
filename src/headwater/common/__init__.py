"""Modules that every package uses: the data model's values, limits, clocks, names, logs.

The package imports only `headwater.errors` and the standard library. Each module is one mechanism for the whole
project; look here before writing a helper.
"""
