"""Decodes the bytes of an XRANGE reply into Arrow record batches, in an executor.

backend                  plans in the driver and reads in executors; the archive has its own backend
reading                  reads the pages of one partition as record batches
page_source              the connection from which pages are read
reply, cutting           parse a reply; cutting, which is compiled, splits its bytes
page, cut_page           a page's entries, by column
columns                  the columns of a row
codecs                   reads the columns' texts from an entry, for each codec
casting, numbers         convert texts to typed values; numbers is compiled
nested                   reads the columns of a message, with structs, arrays and maps
rows                     assembles columns into record batches
unknown, merging         find attributes without a column; merge small batches
"""
