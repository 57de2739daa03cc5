// Runs `act` of a policy of linear and recurrent layers: encoding, normalisation, networks, head.
// Knows no Python and no environment. Only one thread at a time may use a policy, because it has one set of buffers.
#pragma once

#include <cstdint>
#include <cstddef>
#include <memory>
#include <vector>

#include "encoder.hpp"
#include "layers.hpp"
#include "packed_network.hpp"
#include "penstock/kernels/level.hpp"
#include "penstock/kernels/rows.hpp"

namespace penstock::kernels {

// See penstock.policies.heads.
enum class HeadKind : std::int32_t { gaussian, categorical, squashed_gaussian, deterministic, epsilon_greedy };

struct Head {
    HeadKind kind;
    std::int32_t size;         // elements of an action, or number of discrete actions
    std::int64_t log_std = 0;  // offset in the actor's flat vector (Gaussian only)
    std::int32_t atoms = 1;
    double low = 0.0;   // of log_std, or of the atoms
    double high = 0.0;
    bool dueling = false;

    bool gaussian() const { return kind == HeadKind::gaussian; }
    bool discrete() const { return kind == HeadKind::categorical || kind == HeadKind::epsilon_greedy; }
    // True if the head gives values. Such a head gives log_prob, too.
    bool gives_value() const { return kind == HeadKind::gaussian || kind == HeadKind::categorical; }
    bool gives_q() const { return kind == HeadKind::epsilon_greedy; }
    // Number of network outputs that the head uses.
    std::int32_t outputs() const {
        if (kind == HeadKind::squashed_gaussian) return 2 * size;
        return (dueling ? size + 1 : size) * atoms;
    }
    std::int32_t noise_size() const { return gives_q() ? 2 : size; }
    Distribution noise() const {
        if (gives_q()) return Distribution::uniform;
        return kind == HeadKind::categorical ? Distribution::gumbel : Distribution::normal;
    }
};

struct Graph {
    std::vector<Encoding> encoding;
    std::vector<LayerShape> actor;
    std::vector<LayerShape> critic;  // empty: the value is the actor's last output, if the head gives one
    Head head;
    bool normalize_obs;
    bool normalize_value;
    bool masked = false;  // whether each row says which actions are allowed
};

// From a stored action to the environment's action: see penstock.policies.Gaussian.
struct ActionMap {
    bool bounded = false;  // every bound is finite
    // One bound for each action element if any of them is finite, else empty.
    std::vector<double> low;
    std::vector<double> high;
    std::int64_t start = 0;
};

struct Inputs {
    const Rows* obs = nullptr;       // one for each encoding
    const float* noise = nullptr;    // [n, head.noise_size()]
    const float* explore = nullptr;  // [n]
    Carry carry{};                   // of the actor, then of the critic
    Rows mask{};                     // [n, actions] of one byte each, not zero: allowed; none: all are
};

struct Outputs {
    Rows action;
    Rows log_prob;
    Rows value;
    Rows q;
    Rows environment;
    const ActionMap* map = nullptr;
};

struct Statistics {
    const double* obs_mean = nullptr;
    const double* obs_var = nullptr;
    double value_mean = 0.0;
    double value_var = 1.0;
};

class Policy {
public:
    Policy(Graph graph, const Level& level);

    const Graph& graph() const { return graph_; }
    const Level& level() const { return level_; }

    // Throws std::invalid_argument unless the arrays to be loaded have these lengths.
    void check_load(std::size_t actor, std::size_t critic, std::size_t obs_mean, std::size_t obs_var) const;
    void load(const float* actor, const float* critic, const Statistics& statistics);
    void act(const Inputs& in, const Outputs& out, std::int64_t n);
    // The values alone, of observations and carry; writes no carry.
    void values(const Inputs& in, Rows value, std::int64_t n);
    // The log-probabilities of given actions, and the values. Only for heads that give both, without a carry and a mask.
    void judge(const Rows* obs, const Rows& action, const Rows& log_prob, const Rows& value, std::int64_t n);
    // How many numbers of a lane each array of the carry holds.
    const std::vector<std::int32_t>& carried() const { return carried_; }

private:
    void encode(const Rows* obs, std::int64_t first, std::int32_t rows);
    const float* run(PackedNetwork& network, const Carry& carry, std::int64_t first, std::int32_t rows);
    const float* run_critic(const Carry& carry, std::int64_t first, std::int32_t rows);
    void write_values(const Rows& value, std::int64_t first, std::int32_t rows, const float* from) const;
    void gaussian(const float* mean, const Inputs& in, const Outputs& out, std::int64_t first, std::int32_t rows) const;
    void categorical(const float* logits, const Inputs& in, const Outputs& out, std::int64_t first, std::int32_t rows);
    void judge_gaussian(const float* mean, const Rows& action, const Rows& log_prob, std::int64_t first, std::int32_t rows) const;
    void judge_categorical(const float* logits, const Rows& action, const Rows& log_prob, std::int64_t first, std::int32_t rows);
    // Writes exp(logit - largest logit) of each row to scratch_ [rows, size].
    void exponentials(const float* logits, std::ptrdiff_t stride, std::int32_t rows);
    void squashed_gaussian(const float* outputs, const Inputs& in, const Outputs& out, std::int64_t first, std::int32_t rows);
    void deterministic(const float* outputs, const Inputs& in, const Outputs& out, std::int64_t first, std::int32_t rows);
    void epsilon_greedy(const float* outputs, const Inputs& in, const Outputs& out, std::int64_t first, std::int32_t rows);
    // The logits [rows, size], minus infinity where an action is forbidden.
    const float* masked_logits(const float* logits, const Inputs& in, std::int64_t first, std::int32_t rows);
    // q [size] of one row's outputs.
    void action_values(const float* outputs, float* q);
    void write_action(const float* action, const Outputs& out, std::int64_t row) const;
    void write_chosen(std::int64_t chosen, const Outputs& out, std::int64_t row) const;
    void to_environment(const Outputs& out, std::int64_t row) const;

    Graph graph_;
    const Level& level_;
    PackedNetwork actor_;
    std::unique_ptr<PackedNetwork> critic_;
    std::vector<std::int32_t> carried_;
    Encoder encoder_;
    std::ptrdiff_t stride_ = 0;
    float value_mean_ = 0.0F, value_scale_ = 1.0F;
    std::vector<float> std_;
    float log_prob_constant_ = 0.0F;
    std::vector<float> atoms_, q_;
    Floats encoded_, first_, second_, scratch_, masked_;
};

}  // namespace penstock::kernels
