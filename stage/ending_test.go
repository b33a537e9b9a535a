package stage_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/transport/transporttest"
)

// log collects the events of a stage.
type log struct {
	mu   sync.Mutex
	text string
}

func (l *log) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += text + "\n"
}

func (l *log) says(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text, part)
}

// assigned greets the only stage of c as its head and waits until it has taken the part a describes of the model's layers.
func assigned(ctx context.Context, c *cluster, a transport.Assignment) *transport.Link {
	c.t.Helper()
	hello := local(c.model)
	head := c.greet(ctx, hello)
	if _, err := head.Recv(ctx); err != nil {
		c.t.Fatal(err)
	}
	a.Fingerprint, a.Last, a.Context, a.Sessions = hello.Fingerprint, int32(c.model.Spec.Layers-1), 8, 1
	if err := head.Send(&a); err != nil {
		c.t.Fatal(err)
	}
	f, err := head.Recv(ctx)
	if ready, ok := f.(*transport.Ready); !ok || ready.Detail != "" {
		c.t.Fatalf("got %+v, error %v: want a stage that is ready", f, err)
	}
	return head
}

// TestEndOfPredecessor: a stage whose predecessor leaves the ring says so, unless the head has ended the ring, of which the
// predecessor may know first.
func TestEndOfPredecessor(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	lost := "failed: stage 2: previous hop lost during receiving: "
	for _, tt := range []struct {
		name   string
		reason error // of the predecessor
		ends   bool  // the head ends the ring right after
		want   string
	}{
		{"the head ends the ring", nil, true, ""},
		{"the head goes on", nil, false, "was closed by the other side"},
		{"the predecessor fails", errors.New("out of order"), true, "was closed by the other side: out of order"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			var said log
			c := startCluster(t, m, nil, 1)
			c.serve(m, plan.Range{First: 0, Last: m.Spec.Layers - 1}, func(o *stage.ServerOptions) { o.Event = said.add })
			head := assigned(ctx, c, transport.Assignment{Stage: 2, Stages: 2, PrevFingerprint: c.head.Fingerprint()})
			hello := local(m)
			hello.Role = transport.RoleHop
			prev := c.greet(ctx, hello)
			if _, err := prev.Recv(ctx); err != nil {
				t.Fatal(err)
			}
			prev.Close(tt.reason)
			if tt.want != "" {
				waitFor(t, "the stage to say that it lost its predecessor", func() bool { return said.says(lost) })
				f, err := head.Recv(ctx)
				if fault, ok := f.(*transport.Fault); !ok || fault.Code != transport.FaultPrevHop || !strings.HasSuffix(fault.Text, tt.want) {
					t.Errorf("the head is told %+v, error %v: want a lost predecessor that %s", f, err, tt.want)
				}
			}
			if tt.ends {
				time.Sleep(200 * time.Millisecond) // longer than a stage takes to say something
				head.Close(nil)
				waitFor(t, "the stage to say that the ring ended", func() bool { return said.says("ended: ") })
			}
			if got := said.says("failed"); got != (tt.want != "") {
				t.Errorf("it says %q", said.text)
			}
		})
	}
}

// TestNextIsToldWhy: a stage that leaves a ring which its head has not closed tells the next stage why.
func TestNextIsToldWhy(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	for _, tt := range []struct {
		name   string
		reason error // of the head
		want   string
	}{{"the head closes the ring", nil, ""}, {"the head fails", errors.New("out of order"), "closed by the other side: out of order"}} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			c := startCluster(t, m, nil, 1)
			c.serve(m, plan.Range{First: 0, Last: m.Spec.Layers - 1}, nil)
			id := newIdentity(t)
			l, addr := transporttest.Listen(t, id, transporttest.Allow(c.ids[0]))
			end := make(chan error, 1)
			go func() {
				link, err := l.Accept(ctx)
				if err == nil {
					_, err = link.Recv(ctx)
				}
				if err == nil {
					hello := local(m)
					link.Send(&hello)
					_, err = link.Recv(ctx)
					link.Close(nil)
				}
				end <- err
			}()
			head := assigned(ctx, c, transport.Assignment{Stage: 1, Stages: 2, NextAddr: addr.Host, NextFingerprint: id.Fingerprint()})
			head.Close(tt.reason)
			err := <-end
			if errors.Is(err, io.EOF) != (tt.reason == nil) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the next stage is told %v", err)
			}
		})
	}
}
