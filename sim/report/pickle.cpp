#include "pickle.hpp"

#include <array>

namespace tidemark {
namespace {

constexpr int batch = 1000;

/// The lowest `N` bytes, least significant first.
template <std::size_t N>
std::array<char, N> little_endian(std::uint64_t value) {
  std::array<char, N> out{};
  for (std::size_t i = 0; i < N; ++i) out[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

template <std::size_t N>
std::string_view text_of(const std::array<char, N>& bytes) {
  return {bytes.data(), N};
}

}  // namespace

PickleWriter::PickleWriter(const TextSink& sink) : out_(sink) { out_.text("\x80\x02"); }

void PickleWriter::begin_list() {
  out_.text("](");
  items_.push_back(0);
}

void PickleWriter::end_item() {
  if (++items_.back() < batch) return;
  out_.text("e(");
  items_.back() = 0;
}

void PickleWriter::end_list() {
  out_.text("e");
  items_.pop_back();
}

void PickleWriter::pair(std::int64_t first, std::int64_t second) {
  integer(first);
  integer(second);
  out_.text("\x86");
}

std::uint32_t PickleWriter::remember() {
  reference('r', remembered_);
  return remembered_++;
}

void PickleWriter::stop() {
  out_.text(".");
  out_.flush();
}

void PickleWriter::string(std::string_view text) {
  const auto [found, is_new] = strings_.try_emplace(std::string(text), 0U);
  if (!is_new) {
    recall(found->second);
    return;
  }
  const std::string clean = valid_utf8(text);
  out_.text("X").text(text_of(little_endian<4>(clean.size()))).text(clean);
  found->second = remember();
}

void PickleWriter::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value < 256)
    out_.text("K").text(text_of(little_endian<1>(bits)));
  else if (value == static_cast<std::int32_t>(value))
    out_.text("J").text(text_of(little_endian<4>(bits)));
  else
    out_.text("\x8a\x08").text(text_of(little_endian<8>(bits)));
}

void PickleWriter::reference(char opcode, std::uint32_t number) {
  out_.text({&opcode, 1}).text(text_of(little_endian<4>(number)));
}

}  // namespace tidemark
