// Mixture of experts, NUMERICS.md section 10: which rows an expert computes. A slot is a row of the batch and one of its topK
// choices: slot = row * topK + choice. The list holds the slots by expert: where those of each
// expert begin, [experts + 1], and then the slots.

// choiceOf is the expert of a choice, as the route has it (route.comp): bounded, since a row that failed may hold anything.
uint choiceOf(float v, uint experts) { return v >= 0.0 ? min(uint(v), experts - 1u) : 0u; }
