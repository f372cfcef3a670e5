#include "tidemark/input/parallel.hpp"

#include <fmt/core.h>

#include <numeric>

#include "tidemark/input/quantities.hpp"
#include "tidemark/input/schedule_file.hpp"
#include "tidemark/input/settings.hpp"
#include "tidemark/input/stage_policies.hpp"
#include "tidemark/input/yaml_map.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t max_stages = 4096;  // ranks are numbered in 16 bits
constexpr std::int64_t max_chunks = 4096;
constexpr std::int64_t max_micro_batches = 1'000'000;

class ParallelReader {
 public:
  ParallelReader(const YamlMap& map, const PipelinedModel& model) : map_(map), model_(model), layers_(model.layers) {}

  std::optional<PipelineSettings> read() {
    read_schedule_choice();
    read_sizes();
    cut_layers();
    check_rule();
    read_transfers();
    read_policies();
    read_shown();
    out_.steady = map_.get("steady", boolean, false);
    if (out_.stages == 1 && out_.chunks() == 1 && out_.micro_batches == 1) return std::nullopt;
    return std::move(out_);
  }

 private:
  int number(std::string_view key, int fallback, std::int64_t most) const {
    return map_.get(
        key, [&](const Field& f) { return static_cast<int>(positive_integer(f, most)); }, fallback);
  }

  void read_schedule_choice() {
    if (const auto file = map_.optional("schedule_file")) {
      if (const auto named = map_.optional("schedule"))
        named->fail("'schedule' and 'schedule_file' are both given; expected one of the two");
      out_.custom = read_schedule(path(*file));
    } else if (const auto named = map_.optional("schedule")) {
      out_.schedule = choice(*named);
    }
  }

  /// A number that the schedule's file knows too.
  void agree(std::string_view key, int given, int of_file) const {
    if (given != of_file)
      map_.optional(key)->fail(
          fmt::format("'{}' is {}, but the schedule's file has {}; leave it out", key, given, of_file));
  }

  void read_sizes() {
    const PipelineSchedule* custom = out_.custom ? &*out_.custom : nullptr;
    const int ranks = custom != nullptr ? static_cast<int>(custom->ranks.size()) : 1;
    out_.stages = number("pipeline", ranks, max_stages);
    out_.chunks_per_stage = number("virtual", out_.schedule == "zb_v" ? 2 : 1, max_chunks);
    out_.micro_batches =
        number("micro_batches", custom != nullptr ? custom->micro_batches : model_.micro_batches, max_micro_batches);
    if (const auto field = map_.optional("micro_batches");
        field && model_.micro_batches > 1 && model_.micro_batches != out_.micro_batches)
      field->fail(fmt::format("'micro_batches' is {}, but batch.accumulate is {}; leave one of them out",
                              out_.micro_batches, model_.micro_batches));
    if (custom != nullptr) {
      agree("pipeline", out_.stages, ranks);
      agree("micro_batches", out_.micro_batches, custom->micro_batches);
      if (custom->chunks() % ranks != 0)
        map_.optional("schedule_file")
            ->fail(fmt::format("the schedule's {} chunks do not divide by its {} ranks", custom->chunks(), ranks));
      if (!map_.has("virtual")) out_.chunks_per_stage = custom->chunks() / ranks;
      agree("virtual", out_.chunks_per_stage, custom->chunks() / ranks);
    } else if (out_.schedule.empty()) {
      out_.schedule = out_.chunks_per_stage > 1 ? "interleaved" : "1f1b";
    }
  }

  /// By chunk. A transformer's first and last one may have none: the embedding, the head alone.
  std::vector<std::int64_t> layer_numbers(const Field& field) const {
    std::vector<std::int64_t> out;
    const std::vector<Field> given = items(field);
    for (std::size_t c = 0; c < given.size(); ++c) {
      const bool is_end = model_.has_ends && given.size() > 2 && (c == 0 || c + 1 == given.size());
      out.push_back(is_end ? whole_number(given[c], 0, max_integer >> 20)
                           : positive_integer(given[c], max_integer >> 20));
    }
    return out;
  }

  void cut_layers() {
    const auto chunks = static_cast<std::size_t>(out_.chunks());
    if (const auto field = map_.optional("layers_per_chunk")) {
      const std::vector<std::int64_t> given = layer_numbers(*field);
      if (given.size() != 1 && given.size() != chunks)
        field->fail(fmt::format("'layers_per_chunk' has {} entries; expected one, or one for each of the {} chunks",
                                given.size(), chunks));
      for (std::size_t c = 0; c < chunks; ++c)
        out_.layers_per_chunk.push_back(static_cast<std::int32_t>(given[given.size() == 1 ? 0 : c]));
      const auto sum = std::accumulate(out_.layers_per_chunk.begin(), out_.layers_per_chunk.end(), std::int64_t{0});
      if (sum != layers_)
        field->fail(fmt::format("the {} chunks hold {} layers, but the model has {}", chunks, sum, layers_));
      return;
    }
    if (layers_ % out_.chunks() != 0)
      place("pipeline")
          .fail(fmt::format(
              "{} layers do not divide into {} stages of {} chunk{}; give each chunk's number in 'layers_per_chunk'",
              layers_, out_.stages, out_.chunks_per_stage, out_.chunks_per_stage == 1 ? "" : "s"));
    out_.layers_per_chunk.assign(chunks, static_cast<std::int32_t>(layers_ / out_.chunks()));
  }

  /// The field that a rule about it should name.
  Field place(std::string_view key) const {
    for (const std::string_view one : {key, std::string_view("schedule"), std::string_view("schedule_file")})
      if (const auto field = map_.optional(one)) return *field;
    return map_.fields().front();
  }

  /// The schedule's own rules, at the number that breaks them. Searched schedules have none beyond one chunk a stage.
  void check_rule() const {
    if (out_.custom || (is_searched(out_.schedule) && out_.chunks_per_stage == 1)) return;
    try {
      make_schedule(out_.schedule, out_.stages, out_.chunks_per_stage, out_.micro_batches);
    } catch (const InputError& error) {
      place(out_.schedule == "interleaved" ? "micro_batches" : "virtual").fail(error.message());
    }
  }

  void read_transfers() {
    out_.transfers.time = map_.get("transfer_time", time, Nanos{});
    out_.transfers.bandwidth = map_.get("transfer_bandwidth", byte_rate, 0.0);
    read_nodes();
    out_.transfers.free_outputs = map_.get("free_outputs", boolean, model_.frees_outputs);
    out_.transfers.blocking = map_.get("blocking_transfers", boolean, false);
    if (const auto field = map_.optional("turn_waits")) {
      out_.transfers.first_of_group_waits = choice(*field) == "first";
      if (out_.schedule != "interleaved")
        field->fail("'turn_waits' is about groups of micro-batches; expected schedule interleaved");
    }
  }

  /// Between nodes transfers are as within them, where nothing else is given.
  void read_nodes() {
    Transfers& transfers = out_.transfers;
    transfers.node_time = map_.get("node_transfer_time", time, transfers.time);
    transfers.node_bandwidth = map_.get("node_transfer_bandwidth", byte_rate, transfers.bandwidth);
    const auto field = map_.optional("stages_per_node");
    for (const char* key : {"node_transfer_time", "node_transfer_bandwidth"})
      if (const auto given = map_.optional(key); given && !field)
        given->fail(fmt::format("'{}' is for transfers between nodes; expected 'stages_per_node' beside it", key));
    if (!field) return;
    transfers.per_node = static_cast<int>(positive_integer(*field, max_stages));
    if (out_.stages % transfers.per_node != 0)
      field->fail(fmt::format("{} stages do not divide into nodes of {}", out_.stages, transfers.per_node));
  }

  void read_policies() {
    const auto list = map_.optional("stage_policies");
    const auto file = map_.optional("stage_policies_file");
    if (list && file) file->fail("'stage_policies' and 'stage_policies_file' are both given; expected one of the two");
    if (!list && !file) return;
    const Field& field = list ? *list : *file;
    out_.policies = list ? stage_policies(field) : read_stage_policies(path(field));
    if (out_.policies.size() != static_cast<std::size_t>(out_.stages))
      field.fail(fmt::format("'{}' has {} entries; expected one for each of the {} stages", field.key->name,
                             out_.policies.size(), out_.stages));
  }

  void read_shown() {
    for (const std::string_view key : {"stage", "rank"}) {
      const auto field = map_.optional(key);
      if (!field || field->value->text == "all") continue;
      const auto stage = static_cast<int>(whole_number(*field, 0, max_stages));
      if (stage >= out_.stages)
        field->fail(fmt::format("there is no {} {}; expected 0 to {}, or all", key, stage, out_.stages - 1));
      if (out_.stage && *out_.stage != stage) field->fail("'stage' and 'rank' name different ones");
      out_.stage = stage;
    }
  }

  const YamlMap& map_;
  PipelinedModel model_;
  std::int64_t layers_;
  PipelineSettings out_;
};

}  // namespace

std::optional<PipelineSettings> read_parallel(const YamlMap& map, const PipelinedModel& model) {
  if (map.fields().empty()) return std::nullopt;
  return ParallelReader(map, model).read();
}

}  // namespace tidemark
