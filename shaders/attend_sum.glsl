// Weighted sums of the values of a block, NUMERICS.md section 8. Included after int64.glsl and dot.glsl.

// blockSum is B_b[d]: at is where the limbs of the weights begin in the array that the includer defines as WEIGHTS, [count]
// limbs of four vectors; high and low are the limbs of channel d of the values.
uvec2 blockSum(uint at, uint count, uvec4 high[4], uvec4 low[4]) {
    uvec2 sum = uvec2(0u);
    [[dont_unroll]] for (uint l = 0u; l < min(count, 3u); l++) { // a row that has failed may hold any count
        int h = 0, o = 0;
        STEPWISE for (uint g = 0u; g < 4u; g++) {
            uvec4 w = WEIGHTS[at + 4u * l + g];
            h = dot16(h, w, high[g]);
            o = dot16(o, w, low[g]);
        }
        sum = add64(left64(sum, 8u), widened(256 * h + o));
    }
    return sum;
}
