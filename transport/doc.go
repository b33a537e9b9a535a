// Package transport carries frames between the machines of a ring: who they are, how they reach each other, and what
// the bytes mean. It knows no model; WIRE.md beside this file is the normative description of everything on the wire.
//
// A Link is one QUIC connection with one bidirectional stream of frames. Both ends present an Ed25519 key inside TLS 1.3
// and both have accepted the other's key before any frame is parsed; there is no mode without. Trust works as in SSH: the
// side that listens (a stage) accepts the keys of an AuthorizedKeys file, the side that dials (a head, or the stage
// before) knows the other's fingerprint from the address it was given or pins it in a KnownHosts file.
//
//	Identity --+-- Listen -> Listener -- Accept -> Link -- Send, Recv
//	           +-- Dial   ----------------------> Link
//
// A peer that dies or falls silent is noticed within about six seconds (DefaultIdleTimeout and the keep-alive of a third
// of it), and every call here that waits has a deadline of its own or takes a context.
package transport
