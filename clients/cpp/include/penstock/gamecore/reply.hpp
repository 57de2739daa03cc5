// What came of one request.
#pragma once

#include <string>

#include "penstock/gamecore/frames.hpp"

namespace penstock::gamecore {

struct Reply {
    Kind kind;
    int status;        // 200: it was answered; 0: the connection was lost; else the server refuses
    std::string body;  // the answer, or why there is none
    [[nodiscard]] bool is_answer() const { return status == 200; }
};

}  // namespace penstock::gamecore
