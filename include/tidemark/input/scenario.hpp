/// What did the user ask for?
///
/// Only `model` is required. What is not given:
///   name                the file's name without its ending
///   profile             ideal for chain, graph and mlp; pytorch-cuda for transformer and program
///   batch               one sequence of one token, one micro-batch a step
///   dtype               float32 for parameters, activations and optimizer state; gradients as the parameters
///   optimizer           none; multi_tensor and zero_grad: none (gradients born anew each step) with one
///   loss, loop          unchunked, not fused; no variable holds the logits through backward
///   policy              none: everything is saved. per_segment, boundaries released, not nested
///   steps               1, or 2 with an optimizer, whose state is born in step 0
///   parallel            one device
///   device              no rates (a compute lasts 0 unless its time is given) and no capacity
///   allocator           live: requested bytes of what is held
///   convention          framework; flops_convention palm; no budget
/// docs/scenario.md has every key.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tidemark/base/device.hpp"
#include "tidemark/engine/caching_allocator.hpp"
#include "tidemark/input/document.hpp"
#include "tidemark/input/parallel.hpp"
#include "tidemark/plan/policy.hpp"
#include "tidemark/program/layer_graph.hpp"
#include "tidemark/program/mlp.hpp"
#include "tidemark/program/outline.hpp"
#include "tidemark/program/training.hpp"
#include "tidemark/program/transformer.hpp"
#include "tidemark/step/lower.hpp"

namespace tidemark {

using ModelSpec = std::variant<LayerGraph, MlpSpec, TransformerSpec, Program>;

struct Scenario {
  std::string name;
  std::string file;    // where it came from, for messages; "" without one
  std::string family;  // chain, graph, mlp, transformer, program
  ModelSpec model;
  Policy policy;
  Training training;
  Convention convention = Convention::framework;
  Device device;
  std::optional<PipelineSettings> pipeline = {};  // several stages, or several micro-batches through one
  std::optional<Bytes> budget;
  std::string flops_convention = "palm";
  std::string allocator = "live";               // live, cuda_caching, arena
  std::optional<CachingSettings> caching = {};  // of kind cuda_caching
};

/// Reads a scenario (YAML). `sets` are the texts after --set, "key.path=value", applied in order before reading.
/// Throws InputError, with file, line and column where there is one, for anything that is not exactly a scenario.
Scenario read_scenario(const std::string& path, const std::vector<std::string>& sets = {});

/// The same of a text, as if it stood in the file `name`, which need not exist.
Scenario parse_scenario(const std::string& text, const std::string& name, const std::vector<std::string>& sets = {});

/// The same of a document that is read already; `file` is its name.
Scenario read_scenario_document(const DocPtr& document, const std::string& file);

/// The flags of a run without a scenario file, as typed; "" is not given.
struct ConfigFlags {
  std::string config;    // path of a Hugging Face config.json
  std::string batch;     // batch.size
  std::string sequence;  // batch.sequence
  std::string policy;    // a policy's kind, or a map in flow YAML
};
/// The scenario that the flags stand for, through the same reader.
Scenario scenario_from_config(const ConfigFlags& flags, const std::vector<std::string>& sets = {});

/// What a policy sees of the scenario's model.
Outline outline(const Scenario& scenario);

}  // namespace tidemark
