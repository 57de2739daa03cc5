// The rows of a batch as records: observations encoded, targets normalised, each row's numbers side by side, so that a
// minibatch is one gather. Knows no loss and no network.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder.hpp"
#include "layers.hpp"
#include "policy.hpp"

namespace penstock::kernels {

// Minibatches as rows of records; a row of weight 0 is not there.
struct Minibatches {
    const std::int64_t* indices;  // [count, size]
    const float* weights;         // [count, size]
    std::int64_t count, size;
};

// The rows of a batch by flat index, each field as one array over all of them.
struct Fields {
    const Rows* obs;
    Rows action, log_prob, advantage, target;
};

// What one thread works with for one minibatch.
struct Sample {
    std::vector<const float*> records;
    std::vector<float> shares;  // weight over the sum of weights
};

// The rows of a sample that go through a network together.
struct Chunk {
    std::size_t first;
    std::int32_t rows;
};

class Records {
public:
    // What follows the encoded features in a record.
    struct Columns {
        std::int32_t action, log_prob, advantage, target, size;
    };

    Records(const Graph& graph, std::int64_t rows);

    std::int64_t rows() const { return rows_; }
    std::size_t statistics() const { return encoder_.statistics(); }
    const Columns& columns() const { return columns_; }

    // Makes records of rows first, ..., first + count - 1. `with_ratio`: of the policy that acted, whose log-probability
    // is kept; else it is 0, and the policy's own is what counts.
    void pack(const Fields& fields, const Statistics& statistics, bool with_ratio, std::int64_t first, std::int64_t count);
    // The rows of one minibatch; false if none of them counts.
    bool collect(const Minibatches& minibatches, std::int64_t number, Sample& rows) const;
    // Copies the features of a chunk into `to`, `stride` floats a row.
    void features(const Sample& rows, const Chunk& chunk, float* to, std::ptrdiff_t stride) const;

private:
    Graph graph_;
    Encoder encoder_;
    Columns columns_;
    std::int64_t rows_;
    Floats records_;
};

}  // namespace penstock::kernels
