"""From the bytes of an XRANGE reply to Arrow record batches, in an executor.

pages.py asks for them, page.py knows how a reply is laid out, columns.py which columns there are,
casting.py how a text becomes a value, rows.py puts the rows together.
"""
