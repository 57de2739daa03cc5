// Deaths that environment variables ask for, in a build of the extension with fault points (`make faults`):
//
//     PENSTOCK_FAULT=<point>:<count>[:<file>]    die when this process passes the point for the count-th time
//     PENSTOCK_FAULT_SIGNAL=<number>             of this signal; SIGKILL if not set
//
// With a file, only one process dies, and only once: the one that can create the file. It writes its process id there. The
// variables are read at each point, so a process may also set them for itself while it runs.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace penstock::memory {

struct AskedFault {
    std::string point;
    long count;
    std::string file;  // empty: every process that passes the point dies

    // Parses a text as above. Missing parts are empty or 0.
    static AskedFault parse(const std::string& text) {
        const std::size_t first = text.find(':');
        const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
        return {text.substr(0, first), first == std::string::npos ? 0 : std::atol(text.c_str() + first + 1),
                second == std::string::npos ? "" : text.substr(second + 1)};
    }
};

// Creates the file and writes this process's id into it. False if another process has created it before.
inline bool sign_fault(const std::string& file) {
    const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0) {
        return false;
    }
    const std::string number = std::to_string(getpid()) + "\n";
    const bool written = write(descriptor, number.data(), number.size()) == static_cast<ssize_t>(number.size());
    close(descriptor);
    return written;
}

inline void die_where_asked(const char* name) {
    static std::atomic<long> passed{0};  // how often this process has passed the point
    const char* text = std::getenv("PENSTOCK_FAULT");
    if (text == nullptr) {
        return;
    }
    const AskedFault asked = AskedFault::parse(text);
    // relaxed: no other data depends on the count.
    if (asked.point != name || passed.fetch_add(1, std::memory_order_relaxed) + 1 != asked.count) {
        return;
    }
    if (asked.file.empty() || sign_fault(asked.file)) {
        const char* signal = std::getenv("PENSTOCK_FAULT_SIGNAL");
        kill(getpid(), signal == nullptr ? SIGKILL : std::atoi(signal));
    }
}

}  // namespace penstock::memory
