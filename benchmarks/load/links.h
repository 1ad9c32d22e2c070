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
    size_t read;   /* of `data`, by `reply` */
    size_t passed; /* of an answer, unread */
    int awaited; /* answers */
    int64_t sent_ns;
    int turn; /* which request comes next, or which step */
    int found;      /* entries that are being settled */
    int generation; /* of the group's position when the link last asked for entries */
} Link;

_Noreturn void fail(const char *what);
void link_open(Link *link, const char *host, int port);
void link_send(Link *link, const char *data, size_t size);
/* Receives once, at most so many bytes (0: as many as there is room for), without reading. Where no
 * number was given it waits for some. */
void link_take(Link *link, size_t most);
/* Throws away what is there, at most so many bytes: how many. */
size_t link_pass(Link *link, size_t most);
/* Reads what has been received: how many answers ended. Ends the program at an error among them. */
int link_read(Link *link);
/* Receives once and reads. What a caller does not look into it drops by link_drop. */
int link_receive(Link *link);
void link_drop(Link *link);

#endif
