// Records every allocation and free of PyTorch's CPU storages: a c10 allocator of the highest priority, loaded with
// ctypes. Bytes are what the framework asked for.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace {

struct Event {
  int64_t block;  // number of the allocation, from 1
  int64_t bytes;  // negative: a free
};

struct Recorder {
  std::unordered_map<void*, Event> live;
  std::vector<Event> events;
  int64_t blocks = 0;
  bool on = false;
};

Recorder& recorder() {
  static auto* one = new Recorder;  // outlives the static objects that free tensors
  return *one;
}

void release(void* memory) {
  Recorder& r = recorder();
  const auto found = r.live.find(memory);
  if (found != r.live.end()) {
    if (r.on) r.events.push_back({found->second.block, -found->second.bytes});
    r.live.erase(found);
  }
  c10::free_cpu(memory);
}

#if TORCH_VERSION_MAJOR >= 2
#define CONST_BEFORE_2
#else
#define CONST_BEFORE_2 const
#endif

struct RecordingAllocator final : c10::Allocator {
#if TORCH_VERSION_MAJOR >= 2
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }
#endif
  c10::DataPtr allocate(size_t bytes) CONST_BEFORE_2 override {
    void* memory = c10::alloc_cpu(bytes);
    Recorder& r = recorder();
    if (memory != nullptr) {
      const Event event{++r.blocks, static_cast<int64_t>(bytes)};
      r.live[memory] = event;
      if (r.on) r.events.push_back(event);
    }
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
};

}  // namespace

extern "C" {

void recorder_install() {
  static auto* allocator = new RecordingAllocator;
  c10::SetAllocator(c10::DeviceType::CPU, allocator, 255);
}

void recorder_start() {
  recorder().events.clear();
  recorder().on = true;
}

int64_t recorder_stop() {
  recorder().on = false;
  return static_cast<int64_t>(recorder().events.size());
}

int64_t recorder_block(int64_t i) { return recorder().events[static_cast<size_t>(i)].block; }
int64_t recorder_bytes(int64_t i) { return recorder().events[static_cast<size_t>(i)].bytes; }
}
