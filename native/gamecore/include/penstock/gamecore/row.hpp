// Reads the body of a tick in Gamecore's default codec, {"obs": [NUMBER, ...], "reward": NUMBER}, straight into float32.
//
// The reward may be left out. Nothing else is read: no other key or order, no nested array. A body that is not read
// here is no error: a JSON reader then takes it, or says what is wrong with it. Numbers that are read here have the
// bits of a JSON reader's doubles, rounded to float32.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

namespace penstock::gamecore {

class RowReader {
  public:
    explicit RowReader(std::string_view body) : at_(body.data()), end_(body.data() + body.size()) {}

    // Whether the body is such a tick with `count` finite numbers. They are then in `row`, 4 bytes each.
    bool read(char* row, std::size_t count, std::optional<double>& reward) {
        if (!(token('{') && word("\"obs\"") && token(':') && token('['))) {
            return false;
        }
        for (std::size_t place = 0; place < count; ++place) {
            double value = 0.0;
            if ((place > 0 && !token(',')) || !number(value)) {
                return false;
            }
            const float narrow = static_cast<float>(value);
            std::memcpy(row + place * sizeof narrow, &narrow, sizeof narrow);
        }
        if (!token(']')) {
            return false;
        }
        if (token(',')) {
            double value = 0.0;
            if (!(word("\"reward\"") && token(':') && number(value))) {
                return false;
            }
            reward = value;
        }
        if (!token('}')) {
            return false;
        }
        space();
        return at_ == end_;
    }

  private:
    // Longer whole numbers are no exact doubles: a JSON reader keeps them as integers.
    static constexpr std::ptrdiff_t kExactDigits = 15;

    void space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
            ++at_;
        }
    }

    bool take(char wanted) {
        const bool found = at_ != end_ && *at_ == wanted;
        at_ += found ? 1 : 0;
        return found;
    }

    bool token(char wanted) {
        space();
        return take(wanted);
    }

    bool word(std::string_view wanted) {
        space();
        const bool found = std::string_view(at_, static_cast<std::size_t>(end_ - at_)).substr(0, wanted.size()) == wanted;
        at_ += found ? wanted.size() : 0;
        return found;
    }

    bool digits() {
        const char* const begin = at_;
        while (at_ != end_ && *at_ >= '0' && *at_ <= '9') {
            ++at_;
        }
        return at_ != begin;
    }

    // A number by JSON's grammar that fits into a float32.
    bool number(double& value) {
        space();
        const char* const begin = at_;
        const bool is_negative = take('-');
        const char* const whole = at_;
        if (!take('0') && !digits()) {
            return false;
        }
        const std::ptrdiff_t size = at_ - whole;
        const bool has_fraction = take('.');
        if (has_fraction && !digits()) {
            return false;
        }
        const bool has_exponent = take('e') || take('E');
        if (has_exponent && !take('+')) {
            take('-');
        }
        if (has_exponent && !digits()) {
            return false;
        }
        const bool is_whole = !has_fraction && !has_exponent;
        // -0 is an integer without a sign for some readers.
        if (is_whole && (size > kExactDigits || (is_negative && *whole == '0'))) {
            return false;
        }
        return converted(begin, value) && std::abs(value) <= std::numeric_limits<float>::max();
    }

    // The double nearest to the number from `begin` to here.
    bool converted([[maybe_unused]] const char* begin, [[maybe_unused]] double& value) {
#if defined(__cpp_lib_to_chars)
        const auto [last, error] = std::from_chars(begin, at_, value);
        return error == std::errc() && last == at_;
#else
        // This standard library reads no floating point numbers: all bodies go to the reader of JSON.
        return false;
#endif
    }

    const char* at_;
    const char* end_;
};

}  // namespace penstock::gamecore
