//go:build carryworker

package launch

import _ "embed"

// Worker is the build with Vulkan, put beside this file by scripts/build.
//
//go:embed worker
var Worker string
