// Lifeline: ends this process when the other end of a pipe is closed. The system closes it when its holder ends.
//
// The lifeline is a thread of its own. It needs no interpreter and no lock, so it works while the process hangs. It lives
// longer than the thread that started it. (A parent-death signal would not do: the system sends it when the *thread* that
// started the child ends.)
#pragma once

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace penstock::memory {

// Watches the read end `fd` and calls _exit(code) at end of file. Throws std::system_error if fd is not open, or if no
// thread can be started.
inline void watch_lifeline(int fd, int code) {
    // The thread has a descriptor of its own, because user code may close all descriptors that it did not open.
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0) {
        throw std::system_error(errno, std::generic_category(), "lifeline");
    }
    // Signals are for the interpreter's own threads, so this thread starts with all signals blocked.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread([own, code] {
            for (;;) {
                char byte;
                const ssize_t got = read(own, &byte, 1);
                if (got > 0 || (got < 0 && errno == EINTR)) {
                    continue;
                }
                _exit(code);  // end of file; or an error, after which the launcher's end would go unnoticed
            }
        }).detach();
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        close(own);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace penstock::memory
