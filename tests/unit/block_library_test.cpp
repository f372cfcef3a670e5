#include "tidemark/study/block_library.hpp"

#include <doctest/doctest.h>

#include "support/small_decoders.hpp"
#include "tidemark/plan/policy.hpp"

using namespace tidemark;

namespace {

using Regions = std::vector<BlockRegion>;

struct Made {
  Step step;
  std::vector<StepPart> parts;
};

constexpr std::size_t blocks = 6;

Made made(const Regions& regions, std::int64_t hidden = test::h) {
  TransformerSpec spec = test::small_gpt2();
  spec.layers = blocks;
  spec.hidden = hidden;
  const Training training = test::training("huggingface", "cuda-sm80");
  const Program program = make_transformer(spec, training);
  Made out;
  const Plan plan = make_plan({policy::Full{}}, regions, outline(program, KernelSet("cuda-sm80")));
  out.step = lower(program, kernels_of(program, training), plan, training, out.parts);
  return out;
}

std::size_t first_block(const Made& model) {
  for (std::size_t i = 0; i < model.step.layers.size(); ++i)
    if (model.step.layers[i] == "layers.0") return i;
  return 0;
}

void add(BlockLibrary& library, const Made& model, const Regions& regions) {
  const Device device;
  library.add({model.step, model.parts, first_block(model), blocks, regions}, OpTimes(device));
}

}  // namespace

TEST_CASE("surroundings: what a block and its neighbours do") {
  //                                     h [a b] [a] h h
  const std::vector<Surroundings> around = surroundings({{1, 2}, {3, 1}}, blocks);
  const auto is = [&](std::size_t i, BlockRuns before, BlockRuns here, BlockRuns after, bool left, bool right) {
    return around[i].index() == Surroundings{before, here, after, left, right}.index();
  };
  using enum BlockRuns;
  CHECK(is(0, edge, held, again, false, false));
  CHECK(is(1, held, again, again, false, true));
  CHECK(is(2, again, again, again, true, false));
  CHECK(is(3, again, again, held, false, false));
  CHECK(is(4, again, held, held, false, false));
  CHECK(is(5, held, held, edge, false, false));
}

TEST_CASE("block library: parts of a step follow each other without a gap") {
  const Regions regions = {{0, 2}, {2, 3}};
  const Made model = made(regions);
  CHECK(model.parts.front().instruction == 0);
  for (std::size_t i = 1; i < model.parts.size(); ++i)
    CHECK(model.parts[i - 1].instruction <= model.parts[i].instruction);
}

TEST_CASE("block library: what it has met it gives back, and nothing else") {
  const Regions regions = {{0, 3}, {3, 3}};
  const Made model = made(regions);
  BlockLibrary library(1, 1);
  add(library, model, regions);
  using enum BlockRuns;
  const LibraryPiece* middle = library.find(BlockPart::forward, {again, again, again, true, true}, 0, 0);
  REQUIRE(middle != nullptr);
  CHECK(middle->stretch.crest > Bytes{});
  CHECK(middle->of_block);
  CHECK(library.find(BlockPart::forward, {again, again, again, false, false}, 0, 0) == nullptr);
  CHECK(library.find(BlockPart::rebuild, {again, again, again, true, true}, 0, 0)->stretch.net > Bytes{});
}

TEST_CASE("block library: blocks that differ cannot be filed under one surroundings") {
  const Regions regions = {{0, 3}, {3, 3}};
  BlockLibrary library(1, 1);
  add(library, made(regions), regions);
  add(library, made(regions), regions);  // the same again is fine
  CHECK_THROWS_AS(add(library, made(regions, 2 * test::h), regions), NotComposable);
  BlockLibrary other(1, 1);
  add(other, made(regions, 2 * test::h), regions);
  CHECK_THROWS_AS(library.check_alike(other), NotComposable);
  // a step whose regions are others than is said
  BlockLibrary wrong(1, 1);
  CHECK_THROWS_AS(add(wrong, made({{0, 2}, {2, 4}}), regions), NotComposable);
}
