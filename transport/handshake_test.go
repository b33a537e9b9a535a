package transport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dchain/transport"
	"dchain/transport/transporttest"
)

// accepting accepts links in the background and closes them at the end of the test.
func accepting(t *testing.T, l *transport.Listener) <-chan *transport.Link {
	t.Helper()
	links := make(chan *transport.Link, 64)
	go func() {
		for {
			link, err := l.Accept(context.Background())
			if err != nil {
				close(links)
				return
			}
			links <- link
		}
	}()
	return links
}

func known(t *testing.T, path string) (*transport.KnownHosts, *[]string) {
	t.Helper()
	var pinned []string
	k, err := transport.OpenKnownHosts(path, func(host, fingerprint string) {
		pinned = append(pinned, host+" "+fingerprint)
	})
	if err != nil {
		t.Fatal(err)
	}
	return k, &pinned
}

func TestHandshakes(t *testing.T) {
	head, stranger, stage := transporttest.Identity(t), transporttest.Identity(t), transporttest.Identity(t)
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	links := accepting(t, l)
	hosts := func(t *testing.T, line string) *transport.KnownHosts {
		path := filepath.Join(t.TempDir(), "known_hosts")
		if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		k, _ := known(t, path)
		return k
	}
	entry := func(id *transport.Identity) string {
		host, port, _ := net.SplitHostPort(addr.Host)
		return fmt.Sprintf("# pinned\n[%s]:%s %s\n", host, port, transport.AuthorizedKeyLine(id.PublicKey()))
	}
	for _, c := range []struct {
		name        string
		as          *transport.Identity
		fingerprint string
		hosts       string // content of the known hosts file, "-" for none
		want        func(error) bool
		text        []string
	}{
		{name: "fingerprint", as: head, fingerprint: stage.Fingerprint(), hosts: "-"},
		{name: "pinned", as: head, hosts: entry(stage)},
		{name: "two keys pinned", as: head, hosts: entry(stranger) + entry(stage)},
		{name: "first use", as: head, hosts: ""},
		{name: "a fingerprint overrules the file", as: head, fingerprint: stage.Fingerprint(), hosts: entry(stranger)},
		{name: "unauthorised", as: stranger, fingerprint: stage.Fingerprint(), hosts: "-",
			want: func(err error) bool {
				var e *transport.UnauthorizedError
				return errors.As(err, &e) && errors.Is(err, transport.ErrUnauthorized) && e.Key.Equal(stranger.PublicKey())
			},
			text: []string{"stage at " + addr.Host + " does not authorise key " + stranger.Fingerprint(),
				transport.AuthorizedKeyLine(stranger.PublicKey())}},
		{name: "fingerprint mismatch", as: head, fingerprint: stranger.Fingerprint(), hosts: "-",
			want: func(err error) bool {
				var e *transport.HostKeyMismatchError
				return errors.As(err, &e) && e.Want == stranger.Fingerprint() && e.Got == stage.Fingerprint()
			},
			text: []string{addr.Host, stage.Fingerprint(), stranger.Fingerprint()}},
		{name: "changed key", as: head, hosts: entry(stranger),
			want: func(err error) bool {
				var e *transport.HostKeyChangedError
				return errors.As(err, &e) && e.Old == stranger.Fingerprint() && e.New == stage.Fingerprint() && e.Line == 2
			},
			text: []string{addr.Host, stage.Fingerprint(), stranger.Fingerprint(), "known_hosts"}},
		{name: "unknown key", as: head, hosts: "-",
			want: func(err error) bool {
				var e *transport.HostKeyUnknownError
				return errors.As(err, &e) && e.Got == stage.Fingerprint()
			},
			text: []string{stage.Fingerprint() + "@" + addr.Host}},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := transport.DialOptions{Identity: c.as}
			if c.hosts != "-" {
				opts.Known = hosts(t, c.hosts)
			}
			start := time.Now()
			link, err := transport.Dial(context.Background(), transport.PeerAddr{Host: addr.Host, Fingerprint: c.fingerprint}, opts)
			if time.Since(start) > 4*time.Second {
				t.Errorf("took %v", time.Since(start))
			}
			if c.want != nil {
				var dial *transport.DialError
				if err == nil || !c.want(err) || !errors.As(err, &dial) || dial.Host != addr.Host {
					t.Fatalf("got %v", err)
				}
				for _, text := range c.text {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("error lacks %q: %v", text, err)
					}
				}
				if c.name != "unauthorised" && !errors.Is(err, transport.ErrHostKey) {
					t.Error("does not match ErrHostKey")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !link.Peer().Equal(stage.PublicKey()) || link.Addr() != addr.Host {
				t.Errorf("peer is %s at %s", transport.Fingerprint(link.Peer()), link.Addr())
			}
			select {
			case accepted := <-links:
				transporttest.CloseBoth(link, accepted)
				if !accepted.Peer().Equal(head.PublicKey()) {
					t.Error("the stage sees another key")
				}
			case <-time.After(5 * time.Second):
				t.Fatal("nothing was accepted")
			}
		})
	}
	select {
	case link := <-links:
		t.Errorf("a link of %s was accepted that should not have been", transport.Fingerprint(link.Peer()))
	case <-time.After(100 * time.Millisecond):
	}
}

func TestFirstUsePinsOnce(t *testing.T) {
	head, stage, stranger := transporttest.Identity(t), transporttest.Identity(t), transporttest.Identity(t)
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	links := accepting(t, l)
	path := filepath.Join(t.TempDir(), "new", "folder", "known_hosts")
	k, pinned := known(t, path)
	host := transport.PeerAddr{Host: addr.Host}

	// A stage that does not let us in has not earned to be pinned.
	if _, err := transport.Dial(context.Background(), host, transport.DialOptions{Identity: stranger, Known: k}); !errors.Is(err, transport.ErrUnauthorized) {
		t.Fatalf("got %v", err)
	}
	for range 3 {
		link, err := transport.Dial(context.Background(), host, transport.DialOptions{Identity: head, Known: k})
		if err != nil {
			t.Fatal(err)
		}
		transporttest.CloseBoth(link, <-links)
	}
	if want := host.Host + " " + stage.Fingerprint(); len(*pinned) != 1 || (*pinned)[0] != want {
		t.Errorf("pinned %q, want once %q", *pinned, want)
	}
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), "\n") != 1 {
		t.Errorf("file holds %q, %v", data, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file mode %v, %v", info.Mode(), err)
	}
}

func TestDialFailures(t *testing.T) {
	t.Parallel()
	id := transporttest.Identity(t)
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	closed, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	listener, stuck := transporttest.Listen(t, id, transporttest.Allow(id)) // nobody calls Accept
	_ = listener
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		host  string
		want  error
		phase string
	}{
		{"nobody listens", context.Background(), closed.LocalAddr().String(), syscall.ECONNREFUSED, transport.PhaseConnect},
		{"silence", context.Background(), silent.LocalAddr().String(), transport.ErrNoAnswer, transport.PhaseConnect},
		{"never let in", context.Background(), stuck.Host, transport.ErrNoAnswer, transport.PhaseAuthorize},
		{"no such name", context.Background(), "no-such-host.invalid:7433", nil, transport.PhaseResolve},
		{"no port", context.Background(), "127.0.0.1", nil, transport.PhaseResolve},
		{"cancelled", cancelled, silent.LocalAddr().String(), context.Canceled, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := transport.Dial(c.ctx, transport.PeerAddr{Host: c.host, Fingerprint: id.Fingerprint()},
				transport.DialOptions{Identity: id, Timeout: time.Second})
			var dial *transport.DialError
			if !errors.As(err, &dial) || dial.Host != c.host || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if c.phase != "" && dial.Phase != c.phase {
				t.Errorf("phase %q, want %q", dial.Phase, c.phase)
			}
			if d := time.Since(start); d > 4*time.Second || c.want == syscall.ECONNREFUSED && d > 900*time.Millisecond {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestListenFailures(t *testing.T) {
	id := transporttest.Identity(t)
	_, addr := transporttest.Listen(t, id, transporttest.Allow())
	allow := transporttest.Allow(id)
	_, err := transport.Listen(transport.ListenOptions{Addr: addr.Host, Identity: id, Authorize: allow})
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "is in use") || !strings.Contains(err.Error(), addr.Host) {
		t.Errorf("port in use: %v", err)
	}
	for name, opts := range map[string]transport.ListenOptions{
		"no authorization":    {Addr: "127.0.0.1:0", Identity: id},
		"no identity":         {Addr: "127.0.0.1:0", Authorize: allow},
		"bad address":         {Addr: "127.0.0.1:http3", Identity: id, Authorize: allow},
		"not our address":     {Addr: "192.0.2.1:0", Identity: id, Authorize: allow},
		"negative timeout":    {Addr: "127.0.0.1:0", Identity: id, Authorize: allow, Timeout: -1},
		"frames of any size":  {Addr: "127.0.0.1:0", Identity: id, Authorize: allow, MaxFrame: 1 << 40},
		"negative frame size": {Addr: "127.0.0.1:0", Identity: id, Authorize: allow, MaxFrame: -1},
	} {
		if l, err := transport.Listen(opts); err == nil {
			l.Close()
			t.Errorf("%s: listens", name)
		}
	}
}

func TestAcceptEnds(t *testing.T) {
	id := transporttest.Identity(t)
	l, _ := transporttest.Listen(t, id, transporttest.Allow(id))
	if _, err := l.Accept(within(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("context: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { l.Close() })
	if _, err := l.Accept(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("close: %v", err)
	}
}

// A stage dials its successor from the port it listens on.
func TestEndpointServesBothDirections(t *testing.T) {
	head, first, second := transporttest.Identity(t), transporttest.Identity(t), transporttest.Identity(t)
	l1, addr1 := transporttest.Listen(t, first, transporttest.Allow(head))
	l2, addr2 := transporttest.Listen(t, second, transporttest.Allow(first))
	links := accepting(t, l2)
	next, err := transport.Dial(context.Background(), addr2, transport.DialOptions{Identity: first, Endpoint: l1.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	accepted := <-links
	if accepted.Addr() != addr1.Host {
		t.Errorf("the successor sees %s, not the listening port %s", accepted.Addr(), addr1.Host)
	}
	fromHead, toHead := transporttest.Connect(t, l1, addr1, head)
	for _, ends := range [][2]*transport.Link{{next, accepted}, {accepted, next}, {fromHead, toHead}, {toHead, fromHead}} {
		if err := ends[0].Send(&transport.Token{ID: 1}); err != nil {
			t.Fatal(err)
		}
		recv(t, ends[1])
	}
	if _, err := transport.Dial(context.Background(), addr2, transport.DialOptions{Identity: head, Endpoint: l1.Endpoint()}); err == nil {
		t.Error("dialled from another identity's endpoint")
	}
	transporttest.CloseBoth(next, accepted)
	if err := fromHead.Send(&transport.Token{ID: 2}); err != nil {
		t.Fatalf("closing one link took another with it: %v", err)
	}
	recv(t, toHead)
}
