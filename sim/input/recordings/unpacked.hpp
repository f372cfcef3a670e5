/// What stands in a file that may be gzipped?
#pragma once

#include <istream>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

struct gzFile_s;  // zlib.h

namespace tidemark::recordings {

/// Unpacks on the way, so that the text need not fit in memory. A damaged or cut-off file is an InputError.
class UnpackedBuffer : public std::streambuf {
 public:
  explicit UnpackedBuffer(const std::string& path);

 protected:
  int_type underflow() override;

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::vector<char> buffer_;
};

class UnpackedFile : public std::istream {
 public:
  explicit UnpackedFile(const std::string& path) : std::istream(nullptr), buffer_(path) {
    rdbuf(&buffer_);
    exceptions(std::ios::badbit);  // so that the buffer's InputErrors pass through
  }

 private:
  UnpackedBuffer buffer_;
};

}  // namespace tidemark::recordings
