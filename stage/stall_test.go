package stage_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
)

// TestHeadThatDoesNotRead: a head that takes no results does not keep those of other heads from being computed.
func TestHeadThatDoesNotRead(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	fingerprint := local(m).Fingerprint
	row := func(seq int32, pos int) *transport.Activation {
		a := transport.NewActivation(m.Spec.Hidden)
		clear(a.Hidden)
		a.Seq, a.TokenIdx, a.NextIndex, a.ModelHash = seq, int32(pos), 1, binary.LittleEndian.Uint32(fingerprint[:4])
		a.Seal()
		return a
	}
	for _, tt := range []struct {
		name string
		ends bool // each session before the next begins
	}{{"of one session", true}, {"of several sessions", false}} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			const sessions = 4 // whose results are more than a link holds
			c := startCluster(t, m, nil, sessions+1)
			s := c.serve(m, plan.Range{First: 0, Last: m.Spec.Layers - 1}, func(o *stage.ServerOptions) { o.Listen.SendTimeout = 8 * time.Second })
			deaf := assigned(ctx, c, transport.Assignment{Ring: [16]byte{1}, Stage: 1, Stages: 1})
			go func() {
				for seq := range int32(sessions) {
					for pos := range c.context {
						if deaf.Send(row(seq+1, pos)) != nil {
							return
						}
					}
					if tt.ends && deaf.Send(&transport.Finished{Seq: seq + 1}) != nil {
						return
					}
				}
			}()
			computed := int64(0)
			waitFor(t, "the stage to hold results that nobody takes", func() bool {
				before := computed
				time.Sleep(300 * time.Millisecond)
				computed, _ = s.Engine().Work()
				return computed > 0 && computed == before
			})
			if tt.ends && computed == int64(sessions*c.context) {
				t.Fatal("the link has taken all results")
			}
			other := assigned(ctx, c, transport.Assignment{Ring: [16]byte{2}, Stage: 1, Stages: 1})
			wait, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			for pos := range 4 {
				if err := other.Send(row(1, pos)); err != nil {
					t.Fatal(err)
				}
				for came := false; !came; {
					f, err := other.Recv(wait)
					if err != nil {
						t.Fatalf("position %d: another head holds the stage up: %v", pos, err)
					}
					a, ok := f.(*transport.Activation)
					if came = ok; ok && int(a.TokenIdx) != pos {
						t.Fatalf("position %d comes back as %d", pos, a.TokenIdx)
					}
				}
			}
		})
	}
}
