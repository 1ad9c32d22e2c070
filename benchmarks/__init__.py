"""Compares Headwater with a real Redis: both are measured in turn, in the same run (``make bench``)."""
