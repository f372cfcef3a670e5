/// Which parts is the table of keys made of?
#pragma once

#include <vector>

#include "tidemark/input/keys.hpp"

namespace tidemark {

/// What each family's model holds, and what a program file is made of.
std::vector<Block> model_blocks();
std::vector<Block> parallel_blocks();

}  // namespace tidemark
