#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "histogram.h"
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
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) fail("not an IPv4 address");
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

/* Returns how many bytes were received; 0 if there are none and the call does not wait. */
static size_t arrived(ssize_t count, int waits) {
    if (count < 0 && !waits && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (count == 0) errno = 0;
    if (count <= 0) fail("the server closed the connection under load");
    return count;
}

void link_take(Link *link, size_t most) {
    if (link->room - link->size < RECEIVE / 2) link->data = realloc(link->data, link->room *= 2);
    size_t room = most ? most : link->room - link->size;
    link->size += arrived(
        recv(link->fd, link->data + link->size, room, most ? MSG_DONTWAIT : 0), most == 0);
}

size_t link_pass(Link *link, size_t most) {
    return arrived(recv(link->fd, NULL, most, MSG_TRUNC | MSG_DONTWAIT), 0);
}

int link_read(Link *link) {
    int ended = 0;
    while (reply_next(&link->reply, link->data, link->size, &link->read)) ended++;
    errno = 0;
    if (link->reply.broken) fail("a reply is not valid RESP");
    if (link->reply.errors) {
        fprintf(stderr, "%s\n", link->reply.error);
        fail("a reply was an error");
    }
    return ended;
}

int link_receive(Link *link) {
    link_take(link, 0);
    return link_read(link);
}

void link_drop(Link *link) { link->size = link->read = 0; }
