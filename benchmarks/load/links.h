/* Connections, each with a receive buffer. */
#ifndef LINKS_H
#define LINKS_H

#include <stddef.h>
#include <stdint.h>

#include "reply.h"

typedef struct {
    int fd;
    Reply reply;
    char *data; /* received bytes of the awaited replies */
    size_t size, room;
    size_t read;   /* of `data`, by `reply` */
    size_t passed; /* bytes of a reply that were discarded unread */
    int awaited; /* replies */
    int64_t sent_ns;
    int turn; /* which request comes next, or which step */
    int found;      /* entries that are being settled */
    int generation; /* of the group's position when the link last asked for entries */
} Link;

_Noreturn void fail(const char *what);
void link_open(Link *link, const char *host, int port);
void link_send(Link *link, const char *data, size_t size);
/* Receives once, at most `most` bytes, without parsing. With 0 it receives as many as there is room for,
 * and waits for them. */
void link_take(Link *link, size_t most);
/* Discards received bytes, at most `most`, and returns their number. */
size_t link_pass(Link *link, size_t most);
/* Parses the received bytes and returns how many replies ended. Ends the program at an error reply. */
int link_read(Link *link);
/* Receives once and parses. A caller that does not need the data drops them with link_drop. */
int link_receive(Link *link);
void link_drop(Link *link);

#endif
