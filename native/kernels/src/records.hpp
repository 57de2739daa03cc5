// The rows of a batch as records. Observations are encoded, targets are normalised, and the numbers of each row lie side by
// side. So a minibatch is one gather. Knows no loss and no network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "encoder.hpp"
#include "layers.hpp"
#include "policy.hpp"

namespace penstock::kernels {

// Minibatches as rows of records. Rows of weight 0 do not count.
struct Minibatches {
    const std::int64_t* indices;  // [count, size]
    const float* weights;         // [count, size]
    std::int64_t count, size;
};

// The rows of a batch by flat index. Each field is one array over all rows. A number without an array is 0 in all records.
struct Fields {
    const Rows* obs;
    Rows action, log_prob, advantage, target;
    Rows importance{};
};

// The working memory of one thread for one minibatch.
struct Sample {
    std::vector<const float*> records;
    std::vector<float> shares;  // weight over the sum of weights
    double weight = 0.0;        // that sum
};

// The rows of a sample that go through a network together.
struct Chunk {
    std::size_t first;
    std::int32_t rows;
};

// Calls body(chunk) for all rows of a sample, in order.
template <typename Body>
void each_chunk(const Sample& rows, Body&& body) {
    const std::size_t count = rows.records.size();
    for (std::size_t first = 0; first < count; first += kRowsAtOnce)
        body(Chunk{first, static_cast<std::int32_t>(std::min<std::size_t>(kRowsAtOnce, count - first))});
}

class Records {
public:
    // The columns behind the encoded features in a record.
    struct Columns {
        std::int32_t action, log_prob, advantage, target;
        std::int32_t importance;  // 0: the records have no such column
        std::int32_t size;
    };

    Records(const Graph& graph, std::int64_t rows, bool weighed);

    std::int64_t rows() const { return rows_; }
    std::size_t statistics() const { return encoder_.statistics(); }
    const Columns& columns() const { return columns_; }

    // Makes records of rows first, ..., first + count - 1.
    void pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count);
    float* row(std::int64_t index) { return records_.data() + index * columns_.size; }
    const float* row(std::int64_t index) const { return records_.data() + index * columns_.size; }
    // Collects the rows of one minibatch. False if none of them counts.
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
