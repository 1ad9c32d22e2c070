"""From the bytes of an XRANGE reply to Arrow record batches, in an executor.

pages.py asks for them, reply.py knows how a reply is laid out, page.py gives its entries by column,
columns.py says which columns there are, casting.py how a text becomes a value, documents.py what a
codec makes of an entry, and rows.py puts the rows together.
"""
