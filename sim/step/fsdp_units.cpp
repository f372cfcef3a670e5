#include "tidemark/step/fsdp_units.hpp"

#include <algorithm>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

constexpr std::int64_t flat_alignment = 16;  // bytes: FlatParamHandle's, with use_orig_params

/// Is a component of the dotted name among these?
bool is_named(std::string_view name, const std::vector<std::string>& among) {
  while (!name.empty()) {
    const std::size_t dot = name.find('.');
    if (std::ranges::find(among, name.substr(0, dot)) != among.end()) return true;
    name = dot == std::string_view::npos ? std::string_view{} : name.substr(dot + 1);
  }
  return false;
}

bool is_adapter(std::string_view name) {
  return name.find("lora_A") != std::string_view::npos || name.find("lora_B") != std::string_view::npos;
}

class UnitMaker {
 public:
  UnitMaker(const Program& program, const Training& training) : program_(program), training_(training) {}

  std::vector<Unit> make() {
    units_.push_back({.name = "root"});
    std::vector<bool> seen(program_.storages.size(), false);
    for (const TensorId t : program_.parameters) {
      const Tensor& tensor = at(t);
      const auto storage = static_cast<std::size_t>(tensor.storage);
      if (seen[storage] || is_named(tensor.name, training_.shards.fsdp.ignored_modules)) continue;
      seen[storage] = true;
      add(unit_of(tensor), t);
    }
    for (Unit& unit : units_) finish(unit);
    std::erase_if(units_, [](const Unit& unit) { return unit.parameters.empty(); });
    return std::move(units_);
  }

 private:
  const Tensor& at(TensorId t) const { return program_.tensors[static_cast<std::size_t>(t)]; }
  bool flat() const { return training_.shards.sharding == Sharding::fsdp1; }

  Unit& unit_of(const Tensor& tensor) {
    if (is_adapter(tensor.name) && tensor.requires_grad)
      return units_.emplace_back(Unit{.scope = Unit::Scope::op, .name = tensor.name, .layer = tensor.layer});
    if (tensor.layer < 0 || !program_.layers[static_cast<std::size_t>(tensor.layer)].is_block) return units_.front();
    const auto found = std::ranges::find_if(
        units_, [&](const Unit& unit) { return unit.scope == Unit::Scope::block && unit.layer == tensor.layer; });
    if (found != units_.end()) return *found;
    return units_.emplace_back(Unit{.scope = Unit::Scope::block,
                                    .name = program_.layers[static_cast<std::size_t>(tensor.layer)].name,
                                    .layer = tensor.layer});
  }

  /// Packed weights stay as they are; the others are stored as the scenario says, and computed in the program's type.
  DType stored_type(const Tensor& tensor, bool packed) const {
    if (packed || !training_.shards.fsdp.parameter_dtype) return tensor.dtype;
    if (is_adapter(tensor.name)) return training_.lora.dtype;
    return training_.dtypes.parameters;
  }

  void add(Unit& unit, TensorId t) {
    const Tensor& tensor = at(t);
    const std::int64_t bytes = program_.storages[static_cast<std::size_t>(tensor.storage)].bytes.count;
    const std::int64_t size = bytes_per_element(tensor.dtype);
    UnitParameter out{.tensor = t, .elements = *element_count(tensor.shape), .computed = tensor.dtype};
    const bool packed = bytes != out.elements * size;
    if (packed) out.elements = (bytes + size - 1) / size;
    out.stored = stored_type(tensor, packed);
    if (flat()) {
      out.padded_elements = round_up(out.elements, flat_alignment / bytes_per_element(out.computed));
    } else {
      const std::int64_t rows = packed || tensor.shape.empty() ? out.elements : tensor.shape.front();
      out.padded_elements = rows == 0 ? 0 : round_up(rows, training_.shards.data) * (out.elements / rows);
    }
    unit.trained = unit.trained || tensor.requires_grad;
    unit.parameters.push_back(out);
  }

  void finish(Unit& unit) const {
    for (const UnitParameter& p : unit.parameters) {
      unit.padded_elements += p.padded_elements;
      if (flat() && p.stored != unit.parameters.front().stored)
        throw InputError("parallel.sharding: fsdp1 lays the parameters of a unit into one tensor, but '" +
                         at(p.tensor).name + "' is " + std::string(to_string(p.stored)) + " and '" +
                         at(unit.parameters.front().tensor).name + "' " +
                         std::string(to_string(unit.parameters.front().stored)) + "; expected one type");
    }
    if (flat()) unit.padded_elements = round_up(unit.padded_elements, training_.shards.data);
  }

  const Program& program_;
  const Training& training_;
  std::vector<Unit> units_;
};

}  // namespace

std::vector<Unit> fsdp_units(const Program& program, const Training& training) {
  return UnitMaker(program, training).make();
}

std::int64_t elements_on_rank(const Unit& unit, std::size_t parameter, Sharding sharding, int ranks, int rank) {
  const UnitParameter& p = unit.parameters[parameter];
  if (sharding == Sharding::fsdp1) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < parameter; ++i) begin += unit.parameters[i].padded_elements;
    const std::int64_t shard = unit.padded_elements / ranks;
    return std::max<std::int64_t>(0, std::min(begin + p.elements, (rank + 1) * shard) - std::max(begin, rank * shard));
  }
  const std::int64_t shard = p.padded_elements / ranks;
  return std::clamp<std::int64_t>(p.elements - rank * shard, 0, shard);
}

}  // namespace tidemark
