#include "tidemark/input/settings_import.hpp"

#include "import_frameworks.hpp"
#include "tidemark/base/errors.hpp"
#include "tidemark/input/document.hpp"
#include "toml_document.hpp"

namespace tidemark {

ImportedScenario import_settings(const std::string& path, std::optional<std::int64_t> vocabulary) {
  if (path.ends_with(".toml")) {
    const DocPtr root = read_toml(path);
    if (!root->find("training") || !root->find("model"))
      throw InputError({path}, "expected torchtitan's settings: tables [model] and [training]");
    return import_torchtitan(*root);
  }
  const DocPtr root = read_yaml(path, "Megatron-LM arguments (YAML) or torchtitan settings (TOML)");
  if (root->kind != DocNode::Kind::map)
    throw InputError(root->where(), "expected Megatron-LM's arguments: a map with MODEL_ARGS, or of --arguments");
  const DocPtr arguments = root->find("MODEL_ARGS");
  if (arguments && arguments->kind == DocNode::Kind::map) return import_megatron(*arguments, vocabulary);
  if (root->find("--num-layers")) return import_megatron(*root, vocabulary);
  throw InputError(root->where(),
                   "settings of no framework that is known: expected Megatron-LM's MODEL_ARGS or torchtitan's .toml");
}

}  // namespace tidemark
