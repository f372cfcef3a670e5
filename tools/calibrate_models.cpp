#include "calibrate_models.hpp"

#include <fmt/core.h>

#include "mlp.hpp"
#include "transformer.hpp"

namespace tidemark::cli {
namespace {

using native::MlpShape;
using native::TransformerShape;

CalibrationModel mlp(const MlpShape& shape, bool held_out) {
  const std::string extents =
      fmt::format("layers: {}, rows: {}, width: {}, hidden: {}", shape.layers, shape.rows, shape.width, shape.hidden);
  return {.name = "mlp " + extents,
          .scenario =
              fmt::format("profile: reference\nmodel: {{family: mlp, {}}}\nsteps: {}\n", extents, calibration_steps),
          .held_out = held_out,
          .train = [shape](native::Machine& machine) {
            native::Mlp model(machine, shape);
            for (int number = 0; number < calibration_steps; ++number) model.step(number, 0, false);
          }};
}

CalibrationModel decoder(const TransformerShape& shape, bool held_out) {
  const std::string extents = fmt::format("layers: {}, hidden: {}, heads: {}, ffn_hidden: {}, vocab: {}", shape.layers,
                                          shape.hidden, shape.heads, shape.ffn_hidden, shape.vocab);
  const std::string batch = fmt::format("size: {}, sequence: {}", shape.batch, shape.sequence);
  return {.name = "decoder " + extents + ", " + batch,
          .scenario = fmt::format("profile: reference\nmodel: {{family: transformer, model_type: gpt2, attention: "
                                  "eager, dropout: 0, {}, max_positions: {}}}\nbatch: {{{}}}\noptimizer: adamw\n"
                                  "steps: {}\n",
                                  extents, shape.positions, batch, calibration_steps),
          .held_out = held_out,
          .train = [shape](native::Machine& machine) {
            native::Transformer model(machine, shape, {}, native::OptimizerKind::adamw);
            for (int number = 0; number < calibration_steps; ++number)
              model.step(number, 1, number + 1 == calibration_steps);
          }};
}

}  // namespace

std::vector<CalibrationModel> calibration_models() {
  std::vector<CalibrationModel> models;
  const auto mlps = [&](bool held_out, std::initializer_list<MlpShape> shapes) {
    for (const MlpShape& shape : shapes) models.push_back(mlp(shape, held_out));
  };
  const auto decoders = [&](bool held_out, std::initializer_list<TransformerShape> shapes) {
    for (const TransformerShape& shape : shapes) models.push_back(decoder(shape, held_out));
  };
  // layers, rows, width, hidden
  mlps(false, {{12, 4, 4, 8},
               {16, 8, 12, 40},
               {32, 16, 16, 64},
               {32, 20, 36, 100},
               {24, 32, 32, 128},
               {24, 50, 24, 90},
               {8, 64, 64, 256},
               {16, 48, 72, 270},
               {12, 128, 56, 200},
               {6, 90, 110, 400},
               {5, 256, 96, 350},
               {4, 128, 128, 512},
               {3, 200, 180, 700},
               {2, 400, 250, 1000}});
  mlps(true, {{16, 12, 20, 56}, {12, 40, 52, 140}, {6, 150, 80, 300}, {8, 72, 120, 450}, {3, 300, 160, 600}});
  // layers, hidden, heads, ffn_hidden, vocab, positions, batch, sequence
  decoders(false, {{8, 8, 2, 16, 20, 8, 1, 8},
                   {12, 16, 2, 64, 40, 16, 2, 12},
                   {8, 36, 3, 100, 90, 24, 2, 20},
                   {6, 32, 4, 128, 64, 32, 4, 32},
                   {6, 60, 4, 200, 300, 40, 3, 36},
                   {4, 64, 4, 256, 150, 64, 2, 64},
                   {3, 96, 6, 350, 500, 50, 3, 48},
                   {2, 128, 4, 512, 700, 100, 2, 96},
                   {2, 180, 6, 700, 1000, 128, 1, 128},
                   {1, 256, 8, 1024, 2000, 128, 2, 128}});
  decoders(true, {{8, 24, 3, 80, 50, 20, 2, 16},
                  {6, 48, 4, 180, 120, 40, 3, 28},
                  {3, 80, 5, 300, 250, 60, 2, 56},
                  {2, 112, 4, 400, 600, 80, 2, 80}});
  return models;
}

}  // namespace tidemark::cli
