/// How does `--set key.path=value` change a scenario before it is read?
#pragma once

#include <string>

#include "tidemark/input/document.hpp"

namespace tidemark {

/// The document with one value replaced or added; the value is flow YAML, and maps on the way are made when missing.
/// `policy: full` is short for `policy: {kind: full}`, so a path may go on below it. Setting `policy.kind` drops that
/// block's other keys, which belonged to the old kind. Messages about the value name `option`, such as
/// "--set policy.interval=two". Throws InputError for a path through a list or a number, or a value that is not YAML.
DocPtr with_value(const DocPtr& document, const std::string& path, const std::string& value, const std::string& option);

/// The same with a value that is read already. Throws InputError for a path through a list or a number.
DocPtr with_node(const DocPtr& document, const std::string& path, const DocPtr& value);
/// The node that a value's text stands for, as `with_value` sets it.
DocPtr setting_node(const std::string& value, const std::string& option);

/// The same for the text after --set, "policy.interval=4". Throws InputError without '=' or with an empty key.
DocPtr with_setting(const DocPtr& document, const std::string& setting);

/// A block that is written as a word stands for a map: `policy: full` for `policy: {kind: full}`. Other nodes are
/// returned as they are.
DocPtr expanded(const DocPtr& node, std::string_view block);

}  // namespace tidemark
