// Package shaders holds the compute shaders of the Vulkan device: sources (*.comp, with *.glsl included) beside the SPIR-V
// that scripts/shaders makes of them.
package shaders

import (
	"embed"
	"fmt"
)

//go:generate ../scripts/shaders

//go:embed *.spv
var files embed.FS

// Code is the SPIR-V of the shader of that name.
func Code(name string) ([]byte, error) {
	code, err := files.ReadFile(name + ".spv")
	if err != nil {
		return nil, fmt.Errorf("no shader %q", name)
	}
	return code, nil
}
