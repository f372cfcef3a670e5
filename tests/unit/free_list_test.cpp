#include "tidemark/engine/free_list.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace tidemark;

namespace {

std::vector<std::int64_t> addresses(const FreeList& list) {
  std::vector<std::int64_t> out;
  for (auto it = list.begin(); it != list.end(); ++it) out.push_back(it->address);
  return out;
}

}  // namespace

TEST_CASE("free list: by size, then by address") {
  FreeList list;
  CHECK(list.at_least(Bytes{1}) == list.end());
  list.insert({Bytes{1024}, 30, 0});
  list.insert({Bytes{512}, 40, 1});
  list.insert({Bytes{1024}, 20, 2});
  list.insert({Bytes{2048}, 10, 3});
  CHECK(addresses(list) == std::vector<std::int64_t>{40, 20, 30, 10});
  CHECK(list.at_least(Bytes{513})->block == 2);
  CHECK(list.at_least(Bytes{1024})->block == 2);
  CHECK(list.at_least(Bytes{1025})->block == 3);
  CHECK(list.at_least(Bytes{2049}) == list.end());
  list.erase({Bytes{1024}, 20, 2});
  CHECK(addresses(list) == std::vector<std::int64_t>{40, 30, 10});
}

TEST_CASE("free list: order holds over many pages, both ways") {
  FreeList list;
  const std::int64_t n = 1009;  // a prime: i * 7 mod n visits every number once
  for (std::int64_t i = 0; i < n; ++i) list.insert({Bytes{512 * (i * 7 % n / 3)}, i * 7 % n, 0});
  std::vector<std::int64_t> expected;
  for (std::int64_t i = 0; i < n; ++i) expected.push_back(i);
  CHECK(addresses(list) == expected);
  auto it = list.end();
  for (std::int64_t i = n; i-- > 0;) {
    --it;
    REQUIRE(it->address == i);
  }
  CHECK(it == list.begin());
  for (std::int64_t i = 0; i < n; i += 2) list.erase({Bytes{512 * (i / 3)}, i, 0});
  std::erase_if(expected, [](std::int64_t i) { return i % 2 == 0; });
  CHECK(addresses(list) == expected);
  for (const std::int64_t i : expected) list.erase({Bytes{512 * (i / 3)}, i, 0});
  CHECK(list.empty());
}
