/* Reads replies in RESP2 and RESP3: where they end, what they sum up to, and the ids in them.
 *
 * An error anywhere in a reply is counted, and what is no RESP breaks the reader for good: a caller
 * looks at both, so that no benchmark counts a refusal as work done. */
#ifndef REPLY_H
#define REPLY_H

#include <stddef.h>

enum { ERROR_TEXT = 160 };

/* How far a reply has been read. Bytes are looked at once, in whatever pieces they come. */
typedef struct {
    long values; /* still to come, 0 between replies */
    long skip;   /* bytes of a bulk that has been announced, its CR LF included */
    long number; /* of the line that is being read */
    int kind;    /* of that line; 0 when none is */
    int negative;
    int push;   /* what is being read was not asked for */
    int errors; /* errors among what has been read */
    int broken; /* what came is no RESP */
    int error_size;
    char error[ERROR_TEXT]; /* the beginning of the last error */
} Reply;

/* Reads on from `*at`, at most to the end of one reply: 1 when one has ended, with `*at` behind it,
 * else 0. What the server pushes without being asked is read over. */
int reply_next(Reply *reply, const char *data, size_t size, size_t *at);

/* The sum of all integers in a whole reply: entries acknowledged, flags of entries settled. */
long reply_sum(const char *data, size_t size);

/* An entry's id as it stands in a reply. */
typedef struct {
    const char *text;
    int length;
} Id;

/* The ids of the entries in a whole reply of XREADGROUP for one stream; -1 where it is none. */
int reply_ids(const char *data, size_t size, Id *ids, int most);

#endif
