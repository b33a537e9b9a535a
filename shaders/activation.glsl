// The activations of NUMERICS.md section 6. Included after numerics.glsl, with its TABLES.

// In the order of units.ActKind.
const uint SILU = 0u;
const uint GELU_TANH = 1u;
const uint GELU = 2u;
const uint RELU = 3u;

float activation(uint kind, float x) {
    switch (kind) {
    case SILU:
        return silu(x);
    case GELU_TANH:
        return geluTanh(x);
    case GELU:
        return gelu(x);
    }
    return x < 0.0 ? 0.0 : flushed(x); // a NaN stays one
}
