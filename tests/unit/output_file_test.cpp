#include "tidemark/report/output_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tidemark/base/errors.hpp"

using namespace tidemark;
namespace fs = std::filesystem;

namespace {

/// An empty folder, gone at the end.
struct Folder {
  fs::path path;
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "tidemark.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    fs::permissions(path, fs::perms::owner_all);
    fs::remove_all(path);
  }
  std::string file(const std::string& name) const { return (path / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator{}));
  }
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

TEST_CASE("output file: appears whole, under its name alone") {
  const Folder folder;
  {
    OutputFile file(folder.file("a.csv"));
    file.write("one,");
    file.write("two\n");
    CHECK_FALSE(fs::exists(folder.file("a.csv")));
    file.commit();
  }
  CHECK(content(folder.file("a.csv")) == "one,two\n");
  CHECK(folder.entries() == 1);
}

TEST_CASE("output file: without a commit nothing changes and nothing is left") {
  const Folder folder;
  put(folder.file("old"), "old");
  {
    OutputFile changed(folder.file("old"));
    changed.write("new");
    OutputFile fresh(folder.file("fresh"));
    fresh.write("new");
  }
  CHECK(content(folder.file("old")) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("output file: replaces what stood there, keeping its permissions and a link to it") {
  const Folder folder;
  put(folder.file("old"), "old");
  fs::permissions(folder.file("old"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("old", folder.path / "link");
  put(folder.file("link"), "new");
  CHECK(content(folder.file("old")) == "new");
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(fs::status(folder.file("old")).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("output file: a target that is no regular file is written directly") {
  put("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("output file: what cannot be written is an OutputError that names it") {
  const Folder folder;
  put(folder.file("plain"), "");
  struct Case {
    std::string name, path, message;
  };
  const Case cases[] = {
      {"a full disk", "/dev/full", "cannot write /dev/full: No space left on device"},
      {"a folder", folder.path.string(), "cannot open " + folder.path.string() + ": Is a directory"},
      {"no such folder", folder.file("no/x"), "cannot open " + folder.file("no/x") + ": No such file or directory"},
      {"a file as folder", folder.file("plain/x"), "cannot open " + folder.file("plain/x") + ": Not a directory"},
      {"an empty name", "", "cannot open : No such file or directory"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    std::string message = "written";
    try {
      put(c.path, "text");
    } catch (const OutputError& error) {
      message = error.what();
    }
    CHECK(message == c.message);
  }
  CHECK(folder.entries() == 1);
}
