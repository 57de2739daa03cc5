// Delta encoding: what comes out is what went in, and no malformed delta is read or written past its end. Each string lies
// in memory of exactly its size, so that the address sanitizer finds each access behind it.
#include "penstock/gamecore/delta.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"

using penstock::gamecore::decode;
using penstock::gamecore::encode;
using penstock::gamecore::result_size;

namespace {

constexpr std::size_t kLimit = 1 << 20;

// The same bytes in memory of their own.
class Exact {
  public:
    explicit Exact(std::string_view bytes) : bytes_(new char[bytes.size()]), size_(bytes.size()) {
        std::copy(bytes.begin(), bytes.end(), bytes_.get());
    }
    [[nodiscard]] std::string_view view() const { return {bytes_.get(), size_}; }

  private:
    std::unique_ptr<char[]> bytes_;
    std::size_t size_;
};

// What a receiver makes of a delta; nothing if it refuses the delta.
std::optional<std::string> received(std::string_view base, std::string_view delta, std::size_t limit = kLimit) {
    const Exact own_base(base), own_delta(delta);
    const auto size = result_size(own_base.view(), own_delta.view(), limit);
    if (!size) {
        return std::nullopt;
    }
    CHECK(*size <= limit);
    const std::unique_ptr<char[]> out(new char[*size]);
    decode(own_base.view(), own_delta.view(), out.get());
    return std::string(out.get(), *size);
}

// The bytes that travel: of the delta, or of the whole if that is smaller.
std::size_t sent(std::string_view base, std::string_view next) {
    const Exact own_base(base), own_next(next);
    const auto delta = encode(own_base.view(), own_next.view());
    if (!delta) {
        return next.size();
    }
    CHECK(delta->size() < next.size());
    CHECK(received(base, *delta) == std::string(next));
    return delta->size();
}

std::string random_bytes(std::mt19937_64& chance, std::size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) {
        byte = static_cast<char>(chance());
    }
    return bytes;
}

std::string bytes_of(const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::string text_of(const std::vector<double>& values) {
    std::string text = "{\"obs\": [";
    for (const double value : values) {
        text += std::to_string(value) + ", ";
    }
    return text + "0], \"reward\": 1.0}";
}

}  // namespace

TEST(delta, one_percent_of_floats_takes_a_twentieth_of_the_bytes) {
    std::mt19937_64 chance(1);
    std::vector<float> values(10000);
    for (float& value : values) {
        value = std::normal_distribution<float>()(chance);
    }
    for (int tick = 0; tick < 20; ++tick) {
        const std::string base = bytes_of(values);
        for (int change = 0; change < 100; ++change) {
            values[chance() % values.size()] = std::normal_distribution<float>()(chance);
        }
        CHECK(sent(base, bytes_of(values)) * 20 < base.size());
    }
}

TEST(delta, numbers_of_a_text_may_become_longer_and_shorter) {
    std::mt19937_64 chance(2);
    std::vector<double> values(5000);
    for (double& value : values) {
        value = std::normal_distribution<double>()(chance);
    }
    for (int tick = 0; tick < 10; ++tick) {
        const std::string base = text_of(values);
        for (int change = 0; change < 50; ++change) {
            values[chance() % values.size()] = 1000 * std::normal_distribution<double>()(chance);
        }
        CHECK(sent(base, text_of(values)) * 10 < base.size());
    }
}

TEST(delta, any_bytes_come_back) {
    std::mt19937_64 chance(3);
    for (int round = 0; round < 3000; ++round) {
        std::string base = random_bytes(chance, chance() % 200), next = base;
        for (std::uint64_t change = chance() % 4; change > 0; --change) {
            const std::size_t at = chance() % (next.size() + 1);
            const std::string put = random_bytes(chance, chance() % 20);
            next.replace(at, chance() % 20, put);
        }
        sent(base, next);
        sent(next, base);
        sent(std::string(), next);
        sent(base, random_bytes(chance, chance() % 200));
    }
    for (const std::size_t size : {0U, 1U, 3U, 4U, 7U, 8U, 9U, 31U, 32U, 33U}) {
        const std::string same(size, 'x');
        CHECK(sent(same, same) <= std::max<std::size_t>(size, 2));
        sent(same, same + "y");
        sent(same + "y", same);
    }
}

TEST(delta, what_does_not_fit_is_refused) {
    const std::string base(100, 'b');
    std::string next = base;
    next[50] = 'n';
    const std::string good = encode(base, next).value();
    CHECK(received(base, good) == next);
    CHECK(!received(base, good, 99));                       // larger than allowed
    CHECK(!received(base.substr(0, 99), good));             // a base that is too short
    CHECK(!received(base, good + "x"));                     // more than a delta
    CHECK(!received(base, ""));                             // no size
    for (std::size_t size = 0; size < good.size(); ++size) {
        CHECK(!received(base, good.substr(0, size)));       // less than a delta
    }
    using namespace std::string_literals;
    CHECK(!received(base, "\x05\x06"s));                    // copies more than the result has
    CHECK(!received(base, "\xc8\x01\x65"s));                // copies more than the base has
    CHECK(!received(base, "\x05\x00\x0cnnnnnn"s));          // puts more than the result has
    CHECK(!received(base, "\x05\x00\x0annnn"s));            // puts more than is there
    CHECK(!received(base, "\x05\x00\x03\x65n\x04"s));       // a place behind the base
    CHECK(!received(base, std::string(9, '\xff') + "\x02"));  // a number of more than 64 bits
    CHECK(!received(base, std::string(20, '\xff')));
    CHECK(!received(base, std::string(9, '\xff') + "\x01"));  // the largest number
    CHECK(received(base, "\x05\x00\x03\x64n\x00"s) == std::nullopt);
    CHECK(received(base, "\x02\x00\x03\x63n\x01"s) == "nb");  // the base's last byte
    CHECK(received(base, "\x00"s) == "");
}

TEST(delta, bytes_that_are_no_delta_do_no_harm) {
    std::mt19937_64 chance(4);
    const std::string base = random_bytes(chance, 300);
    std::string next = base;
    next.replace(100, 5, "inserted bytes");
    next[250] = 'x';
    const std::string good = encode(base, next).value();
    std::size_t accepted = 0;
    for (int round = 0; round < 30000; ++round) {
        std::string bad = round % 2 == 0 ? good : random_bytes(chance, chance() % 40);
        for (std::uint64_t change = chance() % 4; change > 0 && !bad.empty(); --change) {
            bad[chance() % bad.size()] = static_cast<char>(chance());
        }
        bad.resize(chance() % 8 == 0 ? chance() % (bad.size() + 1) : bad.size());
        accepted += received(base, bad, 1000) ? 1 : 0;
    }
    CHECK(accepted > 1000);
}
