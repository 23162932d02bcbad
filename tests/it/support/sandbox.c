// A sandbox for a gateway: a library that is preloaded into it.
// With SANDBOX=options, no socket option can be set. With SANDBOX=epoll, the thread `worker-0` can watch no listening
// socket, as if `max_user_watches` of epoll were reached.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int forbids(const char *what) {
    const char *sandbox = getenv("SANDBOX");
    return sandbox && strcmp(sandbox, what) == 0;
}

int setsockopt(int socket, int level, int option, const void *value, socklen_t length) {
    if (forbids("options")) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return syscall(SYS_setsockopt, socket, level, option, value, length);
}

int epoll_ctl(int epoll, int operation, int file, struct epoll_event *event) {
    char thread[16] = "";
    int is_listening = 0;
    socklen_t length = sizeof is_listening;
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &length);
    if (forbids("epoll") && is_listening && strcmp(thread, "worker-0") == 0) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_epoll_ctl, epoll, operation, file, event);
}
