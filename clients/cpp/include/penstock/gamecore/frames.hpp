// The frames of version 2 of Gamecore over TCP as bytes; see docs/gamecore-tcp.md. Opens no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::gamecore {

enum class Kind : std::uint8_t { stateless = 0, start = 1, tick = 2, stop = 3 };
enum class Encoding : std::uint8_t { plain = 0, key = 1, delta = 2 };

inline constexpr std::string_view kMagic{"\xffGAMCORE", 8};
inline constexpr std::uint16_t kVersion = 2;
inline constexpr std::size_t kWelcomeSize = 16, kReplySize = 24;

inline void append(std::string& to, std::uint64_t number, unsigned bytes) {
    while (bytes > 0) {
        --bytes;
        to.push_back(static_cast<char>((number >> (8 * bytes)) & 0xff));
    }
}

inline std::uint64_t number_at(const char* from, unsigned bytes) {
    std::uint64_t number = 0;
    for (unsigned place = 0; place < bytes; ++place) {
        number = (number << 8) | static_cast<unsigned char>(from[place]);
    }
    return number;
}

// What a client says first.
inline std::string greeting(std::string_view key, std::string_view token) {
    std::string made(kMagic);
    append(made, kVersion, 2);
    append(made, key.size(), 2);
    append(made, token.size(), 4);
    return made.append(key).append(token);
}

struct Welcome {
    bool is_valid;
    int status;
    std::size_t text_size;
};

inline Welcome read_welcome(const char* from) {
    const bool is_valid = std::string_view(from, kMagic.size()) == kMagic && number_at(from + 8, 2) == kVersion;
    return {is_valid, static_cast<int>(number_at(from + 10, 2)), static_cast<std::size_t>(number_at(from + 12, 4))};
}

struct RequestHead {
    std::uint64_t number;
    std::uint64_t base;  // of a delta: id of the request whose body it refers to
    Kind kind;
    Encoding encoding;
};

inline void append_request(std::string& to, const RequestHead& head, std::string_view session, std::string_view body) {
    append(to, head.number, 8);
    append(to, head.base, 8);
    append(to, body.size(), 8);
    append(to, session.size(), 4);
    append(to, static_cast<std::uint64_t>(head.kind), 1);
    append(to, static_cast<std::uint64_t>(head.encoding), 1);
    append(to, 0, 2);
    to.append(session).append(body);
}

struct ReplyHead {
    std::uint64_t number, body_size;
    int status;
};

inline ReplyHead read_reply(const char* from) {
    return {number_at(from, 8), number_at(from + 8, 8), static_cast<int>(number_at(from + 16, 2))};
}

}  // namespace penstock::gamecore
