#include "records.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::kernels {

namespace {

// A record begins at a multiple of half a cache line, so that a small one touches one line.
constexpr std::int32_t kRecordStep = 8;

Records::Columns columns_of(const Graph& graph, bool weighed) {
    std::int32_t features = 0;
    for (const Encoding& part : graph.encoding) features += part.size;
    const std::int32_t actions = graph.head.gaussian() ? graph.head.size : 1;
    const std::int32_t end = features + actions + 3;
    const std::int32_t size = round_up(end + (weighed ? 1 : 0), kRecordStep);
    return {features, features + actions, features + actions + 1, features + actions + 2, weighed ? end : 0, size};
}

}  // namespace

Records::Records(const Graph& graph, std::int64_t rows, bool weighed)
    : graph_(graph), encoder_(graph.encoding, graph.normalize_obs), columns_(columns_of(graph, weighed)), rows_(rows),
      records_(static_cast<std::size_t>(rows * columns_.size)) {}

void Records::pack(const Fields& fields, const Statistics& statistics, std::int64_t first, std::int64_t count) {
    encoder_.load(statistics.obs_mean, statistics.obs_var);
    const double scale = 1.0 / std::sqrt(statistics.value_var + 1e-8);
    for (std::int64_t row = first; row < first + count; ++row) {
        float* record = this->row(row);
        encoder_.encode(fields.obs, row, record);
        if (graph_.head.gaussian())
            read_floats(fields.action.row(row), Dtype::f32, graph_.head.size, record + columns_.action);
        else
            // Rows without a transition may hold any numbers; no minibatch contains them.
            record[columns_.action] = static_cast<float>(
                std::clamp<std::int64_t>(fields.action.at<std::int64_t>(row), 0, graph_.head.size - 1));
        record[columns_.log_prob] = fields.log_prob ? fields.log_prob.at<float>(row) : 0.0F;
        record[columns_.advantage] = fields.advantage ? fields.advantage.at<float>(row) : 0.0F;
        if (columns_.importance) record[columns_.importance] = fields.importance.at<float>(row);
        const float target = fields.target ? fields.target.at<float>(row) : 0.0F;
        record[columns_.target] = graph_.normalize_value ? static_cast<float>((target - statistics.value_mean) * scale) : target;
    }
}

bool Records::collect(const Minibatches& minibatches, std::int64_t number, Sample& rows) const {
    const std::int64_t* indices = minibatches.indices + number * minibatches.size;
    const float* weights = minibatches.weights + number * minibatches.size;
    rows.records.clear();
    rows.shares.clear();
    rows.weight = 0.0;
    for (std::int64_t i = 0; i < minibatches.size; ++i) {
        if (weights[i] == 0.0F) continue;
        rows.records.push_back(row(indices[i]));
        rows.shares.push_back(weights[i]);
        rows.weight += static_cast<double>(weights[i]);
    }
    const auto inverse = static_cast<float>(1.0 / rows.weight);
    for (float& share : rows.shares) share *= inverse;
    return !rows.records.empty();
}

void Records::features(const Sample& rows, const Chunk& chunk, float* to, std::ptrdiff_t stride) const {
    const auto count = static_cast<std::size_t>(columns_.action);
    for (std::int32_t r = 0; r < chunk.rows; ++r)
        std::memcpy(to + r * stride, rows.records[chunk.first + static_cast<std::size_t>(r)], count * sizeof(float));
}

}  // namespace penstock::kernels
