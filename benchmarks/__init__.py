"""Measures Headwater beside a real Redis, in the same run and in turn. Run by ``make bench``."""
