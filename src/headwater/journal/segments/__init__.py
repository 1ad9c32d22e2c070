"""Segments (files with the bodies of entries that are not in memory) and their compaction.

It imports disk and format. Start with segments.py; blobs.py has the format of a blob in a segment.
"""
