#include "unpacked.hpp"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tidemark/base/errors.hpp"

namespace tidemark::recordings {

UnpackedBuffer::UnpackedBuffer(const std::string& path)
    : path_(path), file_(gzopen(path.c_str(), "rb"), &gzclose), buffer_(1U << 16) {
  if (!file_) throw InputError({path}, std::string(std::strerror(errno)) + "; expected a recording");
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw InputError({path}, "is a directory; expected a recording");
}

UnpackedBuffer::int_type UnpackedBuffer::underflow() {
  const int size = gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int error = Z_OK;
  gzerror(file_.get(), &error);
  if (size < 0 || error < 0) throw InputError({path_}, "the compressed file is cut off or damaged");
  if (size == 0) return traits_type::eof();
  setg(buffer_.data(), buffer_.data(), buffer_.data() + size);
  return traits_type::to_int_type(*gptr());
}

}  // namespace tidemark::recordings
