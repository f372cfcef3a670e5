#include <iostream>

#include "tidemark/input/scenario.hpp"
#include "tidemark/study/pipeline.hpp"

int main(int, char** words) {
  const tidemark::Scenario scenario = tidemark::read_scenario(words[1]);
  std::cout << tidemark::to_string(tidemark::run(scenario).timeline.peak) << '\n';
}
