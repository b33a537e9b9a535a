//go:build !carryworker

package launch

// Worker is empty: this program carries none.
const Worker = ""
