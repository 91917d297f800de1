#include "runtime/memory_advice.h"

#include <utility>

namespace duet {
namespace {

std::string& advice() {
  static std::string text;
  return text;
}

}  // namespace

void set_memory_advice(std::string text) { advice() = std::move(text); }
const std::string& memory_advice() { return advice(); }

}  // namespace duet
