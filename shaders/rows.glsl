// The rows of a step: the cache slot and the absolute position of each. A shader defines ROWS as the binding before it includes
// this file.

layout(std430, set = 0, binding = ROWS) readonly buffer Rows { uvec2 stepRows[]; };

uint slotOf(uint row) { return stepRows[row].x; }
int positionOf(uint row) { return int(stepRows[row].y); }
