#include <iostream>

#include "tidemark/base/units.hpp"

int main() { std::cout << tidemark::to_string(tidemark::parse_bytes("40 GiB").value()) << '\n'; }
