// What may go wrong between a game and its server.
#pragma once

#include <stdexcept>
#include <string>

namespace penstock::gamecore {

// The connection broke or could not be made, and nobody knows whether the last request was taken. Begin a new episode.
class Lost : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The server refuses a request. The request has changed nothing.
class Refused : public std::runtime_error {
  public:
    Refused(int status, const std::string& text) : std::runtime_error(text), status_(status) {}
    // What kind of refusal it is, in the numbers of HTTP: 401 the token, 404 no such session, 429 too many sessions.
    [[nodiscard]] int status() const { return status_; }

  private:
    int status_;
};

}  // namespace penstock::gamecore
