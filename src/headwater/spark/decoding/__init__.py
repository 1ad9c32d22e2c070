"""From the bytes of an XRANGE reply to Arrow record batches, in an executor.

reading        the pages of one partition, as record batches
page_source    the connection that pages come over
reply          how a reply is laid out; cutting cuts its bytes, compiled
page, cut_page entries by column
columns        which columns there are
codecs         what a codec makes of an entry
casting        how a text becomes a value; numbers, compiled
rows           columns put together as record batches
gc_freeze, uncompiled    an executor's collector, and its warning
"""
