/* Connections, each with a place to receive into. */
#ifndef LINKS_H
#define LINKS_H

#include <stddef.h>
#include <stdint.h>

#include "reply.h"

typedef struct {
    int fd;
    Reply reply;
    char *data; /* what has been received of the answers that are waited for */
    size_t size, room;
    size_t read; /* of `data`, by `reply` */
    int awaited; /* answers */
    int64_t sent_ns;
    int turn; /* which request comes next, or which step */
    int found;      /* entries that are being settled */
    int generation; /* of the group's position when the link last asked for entries */
} Link;

_Noreturn void fail(const char *what);
void link_open(Link *link, const char *host, int port);
void link_send(Link *link, const char *data, size_t size);
/* Receives once, without reading. */
void link_take(Link *link);
/* Reads what has been received: how many answers ended. Ends the program at an error among them. */
int link_read(Link *link);
/* Receives once and reads. What a caller does not look into it drops by link_drop. */
int link_receive(Link *link);
void link_drop(Link *link);

#endif
