// Whether the long version of a test is wanted: every case instead of a part, as nightly.
#pragma once

#include <cstdlib>

namespace duet::test {

inline bool soak() { return std::getenv("DUET_TEST_SOAK") != nullptr; }

}  // namespace duet::test
