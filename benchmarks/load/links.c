#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "figures.h"
#include "links.h"

enum { RECEIVE = 1 << 18 };

_Noreturn void fail(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

void link_open(Link *link, const char *host, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    memset(link, 0, sizeof *link);
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) fail("no IPv4 address");
    link->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (link->fd < 0 || connect(link->fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    link->data = malloc(link->room = RECEIVE);
}

void link_send(Link *link, const char *data, size_t size) {
    link->sent_ns = now_ns();
    while (size) {
        ssize_t count = send(link->fd, data, size, MSG_NOSIGNAL);
        if (count < 0) {
            if (errno == EINTR) continue;
            fail("send");
        }
        data += count;
        size -= count;
    }
}

void link_take(Link *link) {
    if (link->room - link->size < RECEIVE / 2) link->data = realloc(link->data, link->room *= 2);
    errno = 0;
    ssize_t count = recv(link->fd, link->data + link->size, link->room - link->size, 0);
    if (count <= 0) fail("the server closed the connection under load");
    link->size += count;
}

int link_read(Link *link) {
    int ended = 0;
    while (reply_next(&link->reply, link->data, link->size, &link->read)) ended++;
    errno = 0;
    if (link->reply.broken) fail("an answer is no RESP");
    if (link->reply.errors) {
        fprintf(stderr, "%s\n", link->reply.error);
        fail("an answer was an error");
    }
    return ended;
}

int link_receive(Link *link) {
    link_take(link);
    return link_read(link);
}

void link_drop(Link *link) { link->size = link->read = 0; }
