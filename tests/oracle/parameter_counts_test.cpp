#include <doctest/doctest.h>

#include "support/decoder_specs.hpp"

using namespace tidemark;

TEST_CASE("parameter counts equal the published totals") {
  for (const test::PublishedModel& model : test::published_models()) {
    CAPTURE(model.name);
    CHECK(parameter_count(model.spec) == model.parameters);
    for (const std::string code : {"reference", "huggingface", "megatron", "torchtitan"}) {
      CAPTURE(code);
      Training training;
      training.profile.model_code = code;
      training.batch.sequence = 16;
      CHECK(parameter_count(make_transformer(model.spec, training)) == model.parameters);
    }
  }
}
