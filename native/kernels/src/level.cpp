// Compiled once for each instruction-set level, with PENSTOCK_LEVEL as the level's name. Includes no standard library code
// with external linkage: the linker keeps one copy of such code, perhaps one that this processor cannot run.

#include "penstock/kernels/elementwise.hpp"
#include "penstock/kernels/learning.hpp"
#include "penstock/kernels/level.hpp"
#include "penstock/kernels/linear.hpp"
#include "penstock/kernels/noise.hpp"
#include "penstock/kernels/recurrent.hpp"
#include "penstock/kernels/sequence.hpp"

#define PENSTOCK_TEXT(name) #name
#define PENSTOCK_NAME(name) PENSTOCK_TEXT(name)

namespace penstock::kernels {

extern const Level PENSTOCK_LEVEL;
const Level PENSTOCK_LEVEL{
    PENSTOCK_NAME(PENSTOCK_LEVEL), kWidth, linear, elementwise, product, lstm, gru, slope, add_rows, transpose, squares, adam, rmsprop, sgd, add, follow,
    generate_noise, lstm_step, lstm_gradient, gru_step, gru_gradient,
};

}  // namespace penstock::kernels
