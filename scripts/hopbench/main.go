// Command hopbench measures what a hop between two processes on one machine costs, beside a bare quic-go echo of the same
// size and pace in the same run. It starts itself a second time as the echoing side, measures both in alternating blocks,
// prints JSON and exits 1 when a bar is missed: per hop p50 at most 0.3 ms and p99 at most 1.5 ms (half a round trip), p50
// at most 1.3 x the bare echo's. An absolute bar that the bare echo misses in the same run is reported but not judged. What a
// hop over a lane costs, which processes of one machine take, is reported too.
//
//	go run ./scripts/hopbench [-n 1000] [-bytes 3584] [-pause 5ms]
package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"dchain/transport"
)

const (
	maxP50   = 0.3 // ms per hop
	maxP99   = 1.5
	maxRatio = 1.3
	block    = 50 // round trips before the other side's turn
	header   = 28 // bytes of a frame around its payload: the bare echo carries them too
)

type options struct {
	n, bytes int
	pause    time.Duration
}

func main() {
	var opts options
	flag.IntVar(&opts.n, "n", 1000, "round trips of each kind")
	flag.IntVar(&opts.bytes, "bytes", 3584, "payload `bytes`, a multiple of 4")
	flag.DurationVar(&opts.pause, "pause", 5*time.Millisecond, "time from one message to the next")
	echo := flag.String("echo", "", "serve as the echoing side for the head with this `key` (internal)")
	flag.Parse()
	err := errors.New("-n must be positive and -bytes a positive multiple of 4")
	switch {
	case opts.n < 1 || opts.bytes < 4 || opts.bytes%4 != 0:
	case *echo != "":
		err = serve(*echo, opts)
	default:
		var ok bool
		if ok, err = measure(opts); err == nil && !ok {
			os.Exit(1)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hopbench:", err)
		os.Exit(2)
	}
}

// quantiles of durations, in milliseconds.
type quantiles struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func quantilesOf(d []time.Duration, trips float64) quantiles {
	d = slices.Sorted(slices.Values(d))
	at := func(p float64) float64 {
		return float64(d[min(len(d)-1, int(p*float64(len(d))))].Microseconds()) / 1000 / trips
	}
	return quantiles{at(0.50), at(0.99)}
}

type report struct {
	Bytes     int       `json:"payload_bytes"`
	N         int       `json:"round_trips"`
	PauseMS   float64   `json:"pause_ms"`
	LinkTrip  quantiles `json:"link_round_trip"`
	BareTrip  quantiles `json:"bare_round_trip"`
	LinkHop   quantiles `json:"link_hop"`
	BareHop   quantiles `json:"bare_hop"`
	LaneHop   quantiles `json:"lane_hop"`
	RatioP50  float64   `json:"ratio_p50"`
	RatioP99  float64   `json:"ratio_p99"`
	WithinBar bool      `json:"within_bar"`
	Missed    []string  `json:"missed"`
	// Unjudged lists the absolute bars that the bare echo misses too: the machine is too busy to tell.
	Unjudged []string `json:"unjudged"`
}

// measure runs the head's side. ok is false when a bar is missed.
func measure(opts options) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+6*time.Duration(opts.n)*opts.pause)
	defer cancel()
	id, err := newIdentity()
	if err != nil {
		return false, err
	}
	child, addrs, bareAddr, err := startChild(ctx, id, opts)
	if err != nil {
		return false, err
	}
	defer child.Wait()
	defer child.Process.Kill()

	var trips [3]func() error // over a link, over a lane, bare
	for i, addr := range addrs {
		link, err := transport.Dial(ctx, addr, transport.DialOptions{Identity: id, CarrierOptions: transport.CarrierOptions{Lane: i == 1}})
		if err != nil {
			return false, err
		}
		defer link.Close(nil)
		trips[i] = linkTrip(ctx, link, opts.bytes)
	}
	bare, err := dialBare(ctx, bareAddr)
	if err != nil {
		return false, err
	}
	trips[2] = bareTrip(bare, opts.bytes)
	var times [3][]time.Duration
	for done := -block; done < opts.n; done += block { // the first block warms up
		for turn := range trips {
			kind := (turn + done/block + 1) % 3 // each goes first every third time
			took, err := run(trips[kind], opts.pause)
			if err != nil {
				return false, err
			}
			if done >= 0 {
				times[kind] = append(times[kind], took...)
			}
		}
	}
	r := judge(opts, times[0], times[2])
	r.LaneHop = quantilesOf(times[1], 2)
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return r.WithinBar, out.Encode(r)
}

func judge(opts options, link, bare []time.Duration) report {
	r := report{Bytes: opts.bytes, N: len(link), PauseMS: float64(opts.pause.Microseconds()) / 1000, Missed: []string{}, Unjudged: []string{}}
	r.LinkTrip, r.LinkHop = quantilesOf(link, 1), quantilesOf(link, 2)
	r.BareTrip, r.BareHop = quantilesOf(bare, 1), quantilesOf(bare, 2)
	r.RatioP50, r.RatioP99 = r.LinkTrip.P50/r.BareTrip.P50, r.LinkTrip.P99/r.BareTrip.P99
	for _, bar := range []struct {
		name             string
		value, bare, max float64
	}{{"link_hop.p50_ms", r.LinkHop.P50, r.BareHop.P50, maxP50}, {"link_hop.p99_ms", r.LinkHop.P99, r.BareHop.P99, maxP99}, {"ratio_p50", r.RatioP50, 0, maxRatio}} {
		if bar.value <= bar.max {
			continue
		}
		text := fmt.Sprintf("%s is %.3f, at most %.1f wanted", bar.name, bar.value, bar.max)
		if bar.bare > bar.max {
			r.Unjudged = append(r.Unjudged, text)
		} else {
			r.Missed = append(r.Missed, text)
		}
	}
	r.WithinBar = len(r.Missed) == 0
	return r
}

// run makes one block of round trips, one every pause.
func run(trip func() error, pause time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	next := time.Now()
	for range block {
		time.Sleep(time.Until(next))
		start := time.Now()
		if err := trip(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		next = start.Add(pause)
	}
	return took, nil
}

// linkTrip does what a hop does: hash, send, receive, compare the hash.
func linkTrip(ctx context.Context, link *transport.Link, bytes int) func() error {
	a := transport.NewActivation(bytes / 4)
	clear(a.Hidden)
	return func() error {
		a.TokenIdx++
		a.Hidden[0] = float32(a.TokenIdx)
		a.Seal()
		if err := link.Send(a); err != nil {
			return err
		}
		f, err := link.Recv(ctx)
		if err != nil {
			return err
		}
		back, ok := f.(*transport.Activation)
		if !ok || !back.Intact() || back.TokenIdx != a.TokenIdx {
			return errors.New("the echo differs")
		}
		back.Release()
		return nil
	}
}

func bareTrip(stream *quic.Stream, bytes int) func() error {
	out, in := make([]byte, bytes+header), make([]byte, bytes+header)
	return func() error {
		if _, err := stream.Write(out); err != nil {
			return err
		}
		_, err := io.ReadFull(stream, in)
		return err
	}
}

// startChild starts this program as the echoing side and reads the addresses it prints: of a link, a lane and the bare echo.
func startChild(ctx context.Context, id *transport.Identity, opts options) (*exec.Cmd, []transport.PeerAddr, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, "", err
	}
	child := exec.CommandContext(ctx, self, "-echo", base64.StdEncoding.EncodeToString(id.PublicKey()), "-bytes", fmt.Sprint(opts.bytes))
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		return nil, nil, "", err
	}
	if err := child.Start(); err != nil {
		return nil, nil, "", err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	words := strings.Fields(line)
	if err == nil && len(words) != 3 {
		err = fmt.Errorf("unexpected line %q", line)
	}
	addrs := make([]transport.PeerAddr, 2)
	for i := range addrs {
		if err == nil {
			addrs[i], err = transport.ParsePeerAddr(words[i])
		}
	}
	if err != nil {
		child.Process.Kill()
		child.Wait()
		return nil, nil, "", fmt.Errorf("starting the echoing side: %w", err)
	}
	return child, addrs, words[2], nil
}

func newIdentity() (*transport.Identity, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return transport.NewIdentity(key)
}

// serve is the echoing side.
func serve(head string, opts options) error {
	key, err := base64.StdEncoding.DecodeString(head)
	if err != nil {
		return fmt.Errorf("head's key: %w", err)
	}
	id, err := newIdentity()
	if err != nil {
		return err
	}
	ctx := context.Background()
	ended := make(chan error, 3) // one value from each
	for _, lane := range []bool{false, true} {
		l, err := transport.Listen(transport.ListenOptions{Addr: "127.0.0.1:0", Identity: id, CarrierOptions: transport.CarrierOptions{Lane: lane},
			Authorize: func(k transport.PublicKey) bool { return k.Equal(transport.PublicKey(key)) }})
		if err != nil {
			return err
		}
		defer l.Close()
		fmt.Print(transport.PeerAddr{Host: l.Addr().String(), Fingerprint: id.Fingerprint()}, " ")
		go func() { ended <- echoLink(ctx, l) }()
	}
	bare, err := listenBare()
	if err != nil {
		return err
	}
	defer bare.Close()
	fmt.Println(bare.Addr())
	go func() { ended <- echoBare(ctx, bare, opts.bytes) }()
	return <-ended
}

func echoLink(ctx context.Context, l *transport.Listener) error {
	link, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	for {
		f, err := link.Recv(ctx)
		if errors.Is(err, io.EOF) {
			return link.Close(nil)
		}
		if err != nil {
			return err
		}
		a, ok := f.(*transport.Activation)
		if !ok || !a.Intact() {
			return errors.New("not an intact activation")
		}
		a.NextIndex = transport.Return
		a.Seal()
		if err := link.Send(a); err != nil {
			return err
		}
		a.Release()
	}
}

const bareALPN = "bare-echo"

func listenBare() (*quic.Listener, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, err
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	return quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{bareALPN}}, nil)
}

func echoBare(ctx context.Context, l *quic.Listener, bytes int) error {
	conn, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return err
	}
	buf := make([]byte, bytes+header)
	for {
		if _, err := io.ReadFull(stream, buf); err != nil {
			return err
		}
		if _, err := stream.Write(buf); err != nil {
			return err
		}
	}
}

func dialBare(ctx context.Context, addr string) (*quic.Stream, error) {
	// The bare echo is a yardstick for speed, on loopback, with itself: it has nobody to authenticate.
	conn, err := quic.DialAddr(ctx, addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{bareALPN}}, nil)
	if err != nil {
		return nil, err
	}
	return conn.OpenStreamSync(ctx)
}
