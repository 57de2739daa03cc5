// Runs the policy.onnx of a bundle in C++ with ONNX Runtime, on one thread, and measures its answers.
//
//     penstock export RUN --out policy
//     g++ -std=c++17 -O2 -I ORT/include policy.cpp -L ORT/lib -Wl,-rpath,ORT/lib -lonnxruntime -o policy_cpp
//     ./policy_cpp policy/policy.onnx 100000 0.1 0.2 0.3 0.4        # calls, then the numbers of one observation
//
// ORT is an unpacked release of ONNX Runtime (onnxruntime-linux-x64-VERSION.tgz). Debian 13 has headers and library as
// `apt install libonnxruntime-dev`: then leave out -L and -rpath, and give -I /usr/include/onnxruntime. The Python package
// has the library without headers. Tried by hand on Linux with g++ 12, the headers of 1.21 and the library of 1.31; the
// test compiles it with a stand-in for the headers.
//
// It is for a policy with one observation field of float32 and one action: Discrete, or a Box of float32.
//
// - Windows: Ort::Session takes a wide path there, such as L"policy\\policy.onnx". Not tried there.
// - An action of Discrete is int64, one of a Box float32. The manifest of the bundle names both (`outputs`).
// - A policy with memory also takes `first` (bool [n], true at the first call of an episode) and inputs `carry.*`. Begin
//   with zeros, and give each output `next.carry.NAME` as input `carry.NAME` of the next call.
// - An action mask is one more input, uint8 [n, choices].

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <onnxruntime_cxx_api.h>

namespace {

double at_share(const std::vector<double>& sorted, double share) {
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void print_action(const Ort::Value& action) {
    const auto about = action.GetTensorTypeAndShapeInfo();
    std::printf("action");
    for (std::size_t at = 0; at < about.GetElementCount(); ++at) {
        if (about.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64) {
            std::printf(" %lld", static_cast<long long>(action.GetTensorData<std::int64_t>()[at]));
        } else {
            std::printf(" %.9g", static_cast<double>(action.GetTensorData<float>()[at]));
        }
    }
    std::printf("\n");
}

int run(const char* path, int calls, std::vector<float> observation) {
    Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "policy");
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);  // Policies are small: a second thread costs more than it computes.
    options.SetInterOpNumThreads(1);
    Ort::Session session(environment, path, options);
    if (session.GetInputCount() != 1) {
        std::fprintf(stderr, "%s has %zu inputs: this program gives only obs\n", path, session.GetInputCount());
        return 2;
    }

    // Every input is an array [n, ...] for n observations. Here n is 1. ONNX Runtime refuses a length that does not fit.
    const std::vector<std::int64_t> shape{1, static_cast<std::int64_t>(observation.size())};
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    // The tensor is a view of `observation`: write the next observation into it, and call again.
    const auto obs =
        Ort::Value::CreateTensor<float>(memory, observation.data(), observation.size(), shape.data(), shape.size());
    const char* inputs[]{"obs"};
    const char* outputs[]{"action"};
    const auto answer = [&] { return session.Run(Ort::RunOptions{nullptr}, inputs, &obs, 1, outputs, 1); };

    constexpr int warm_up = 100;  // The first calls take memory for what lies between the layers.
    for (int call = 0; call < warm_up; ++call) answer();
    std::vector<double> times;
    times.reserve(static_cast<std::size_t>(calls));
    for (int call = 0; call < calls; ++call) {
        const auto begun = std::chrono::steady_clock::now();
        answer();
        const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begun;
        times.push_back(taken.count());
    }
    std::sort(times.begin(), times.end());
    print_action(answer()[0]);
    std::printf("%d calls: p50 %.1f us, p99 %.1f us, p99.9 %.1f us, longest %.1f us\n", calls, at_share(times, 0.5),
                at_share(times, 0.99), at_share(times, 0.999), times.back());
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    const int calls = count > 3 ? std::atoi(arguments[2]) : 0;
    if (calls < 1) {
        std::fprintf(stderr, "type: %s policy/policy.onnx CALLS NUMBER...\n", arguments[0]);
        return 2;
    }
    std::vector<float> observation;
    for (int at = 3; at < count; ++at) observation.push_back(std::strtof(arguments[at], nullptr));
    try {
        return run(arguments[1], calls, observation);
    } catch (const Ort::Exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
