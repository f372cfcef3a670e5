#include "tidemark/report/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tidemark/base/errors.hpp"

namespace tidemark {
namespace {

constexpr mode_t default_mode = 0666;  // less the process's umask

/// The path with symbolic links followed, so that a link keeps pointing where it did; the path itself when new.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string out = real;
  std::free(real);
  return out;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (path_ == "-") {
    descriptor_ = STDOUT_FILENO;
    owns_descriptor_ = false;
    return;
  }
  if (path_.empty()) {
    errno = ENOENT;
    fail("open");
  }
  target_ = resolved(path_);
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    fail("open");
  }
  if (exists && ::access(target_.c_str(), W_OK) != 0) fail("open");
  if (exists && !S_ISREG(info.st_mode)) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("open");
    return;
  }
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = target_ + ".part" + std::to_string(::getpid()) + "." + std::to_string(attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, default_mode);
    if (descriptor_ < 0 && errno != EEXIST) {
      temporary_.clear();  // not ours to remove
      fail("open");
    }
  }
  if (exists) ::fchmod(descriptor_, info.st_mode & 07777);
}

OutputFile::~OutputFile() {
  close_now();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OutputFile::commit() {
  if (!owns_descriptor_) return;
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) fail("write");
  const int closing = std::exchange(descriptor_, -1);
  if (::close(closing) != 0) fail("close");
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("name");
  temporary_.clear();
}

void OutputFile::fail(std::string_view what) const {
  const std::string reason = std::strerror(errno);
  throw OutputError("cannot " + std::string(what) + " " + (path_ == "-" ? "standard output" : path_) + ": " + reason);
}

void OutputFile::close_now() noexcept {
  if (owns_descriptor_ && descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace tidemark
