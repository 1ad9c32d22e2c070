"""Modules that every package uses: the data model's values, limits, clocks, names, logs.

The package imports only `headwater.errors`, the standard library and optional extras. Each module is one mechanism
for the whole project; look here before writing a helper.
"""
