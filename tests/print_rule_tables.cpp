/// Prints the rule tables of docs/memory-model.md, between whose markers they stand.
#include <iostream>

#include "support/rules.hpp"

int main() { std::cout << tidemark::test::rule_tables(); }
