/* Parses replies in RESP2 and RESP3: their ends, the sums of their integers, and the ids in them.
 *
 * Error replies are counted, also nested ones, and invalid RESP sets `broken` permanently. A caller
 * checks both, so that a benchmark never counts an error as work. */
#ifndef REPLY_H
#define REPLY_H

#include <stddef.h>

enum { ERROR_TEXT = 160 };

/* The state of parsing a reply. Each byte is parsed once, in pieces of any size. */
typedef struct {
    long values; /* still to come, 0 between replies */
    long skip;   /* bytes of a bulk that has been announced, its CR LF included */
    long number; /* of the line that is being read */
    int kind;    /* of that line; 0 when none is */
    int negative;
    int push;   /* the value being parsed is a push */
    int errors; /* number of errors so far */
    int broken; /* the data are not valid RESP */
    int error_size;
    char error[ERROR_TEXT]; /* the beginning of the last error */
} Reply;

/* Continues parsing at `*at`, at most to the end of one reply. Returns 1 if one has ended, with `*at`
 * behind it, else 0. Pushes are skipped. */
int reply_next(Reply *reply, const char *data, size_t size, size_t *at);

/* Returns the sum of all integers in a complete reply: acknowledged entries, flags of settled entries. */
long reply_sum(const char *data, size_t size);

/* An entry's id in a reply. */
typedef struct {
    const char *text;
    int length;
} Id;

/* Finds the ids of the entries in a complete reply of XREADGROUP for one stream, and returns their
 * number; -1 if it is not such a reply. */
int reply_ids(const char *data, size_t size, Id *ids, int most);

#endif
