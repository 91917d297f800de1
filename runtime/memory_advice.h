// What the messages of memory that ran out advise. Who trains can change the batch, the model and
// what backward keeps; who evaluates a checkpoint or generates from it has other means.
//
//   set_memory_advice("try a smaller --batch_size (it is 12)");
#pragma once

#include <string>

namespace duet {

// From here on, in every such message of this process, which then keeps no graph; "": what helps a
// training step.
void set_memory_advice(std::string text);
const std::string& memory_advice();

}  // namespace duet
