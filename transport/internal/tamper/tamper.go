// Package tamper is the one way to damage frames on purpose. It is internal so that only transport, which looks at it
// before each frame it sends, and transporttest, which sets it, can reach it.
package tamper

import (
	"crypto/ed25519"
	"sync/atomic"
)

// Hook, when set, sees each encoded frame (length, kind, body) that is about to go to peer and may change its bytes.
var Hook atomic.Pointer[func(peer ed25519.PublicKey, frame []byte)]
