// The rows of a step: the cache slot and the absolute position of each. A row that only fills up the recorded batch has
// the slot NO_SLOT. A shader defines ROWS as the binding before it includes this file.

const uint NO_SLOT = 0xffffffffu;

layout(std430, set = 0, binding = ROWS) readonly buffer Rows { uvec2 stepRows[]; };

uint slotOf(uint row) { return stepRows[row].x; }
int positionOf(uint row) { return int(stepRows[row].y); }
