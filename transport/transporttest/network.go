package transporttest

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Network carries UDP packets between any number of clients and one server, and can be made to do so badly.
type Network struct {
	target *net.UDPAddr
	front  *net.UDPConn

	mu    sync.Mutex
	delay time.Duration // one way
	lose  float64       // share of packets
	mute  bool
	cut   bool
	rng   *rand.Rand
	back  map[string]*net.UDPConn // by client address

	wg sync.WaitGroup
}

// NewNetwork starts a network in front of the server at host:port; it ends with the test. Dial Addr instead of the server.
func NewNetwork(t testing.TB, server string) *Network {
	t.Helper()
	target, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	n := &Network{target: target, front: front, rng: rand.New(rand.NewPCG(1, 2)), back: make(map[string]*net.UDPConn)}
	n.wg.Go(n.forth)
	t.Cleanup(func() { n.Cut(); n.wg.Wait() })
	return n
}

// Addr is the address at which clients reach the server through the network.
func (n *Network) Addr() string { return n.front.LocalAddr().String() }

// Delay holds every packet back for d, in each direction.
func (n *Network) Delay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Lose drops the given share of packets, in each direction, always the same ones.
func (n *Network) Lose(share float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = share
}

// Mute drops every packet, or with false lets them through again.
func (n *Network) Mute(mute bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = mute
}

// Cut takes the network away for good: its sockets are closed.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	n.front.Close()
	for _, conn := range n.back {
		conn.Close()
	}
}

// forth carries packets to the server.
func (n *Network) forth() {
	packet := make([]byte, 1<<16)
	line := n.line()
	defer close(line)
	for {
		size, from, err := n.front.ReadFromUDP(packet)
		if err != nil {
			return
		}
		if conn := n.client(from); conn != nil {
			n.carry(line, packet[:size], func(p []byte) { conn.Write(p) })
		}
	}
}

// client returns the socket that stands for a client before the server, nil after Cut.
func (n *Network) client(from *net.UDPAddr) *net.UDPConn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if conn := n.back[from.String()]; conn != nil || n.cut {
		return conn
	}
	conn, err := net.DialUDP("udp", nil, n.target)
	if err != nil {
		return nil
	}
	n.back[from.String()] = conn
	n.wg.Go(func() {
		packet := make([]byte, 1<<16)
		line := n.line()
		defer close(line)
		for {
			size, err := conn.Read(packet)
			if err != nil {
				if n.isCut() {
					return
				}
				time.Sleep(time.Millisecond) // the server's port may be closed for a while
				continue
			}
			n.carry(line, packet[:size], func(p []byte) { n.front.WriteToUDP(p, from) })
		}
	})
	return conn
}

func (n *Network) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// delivery is a packet on its way.
type delivery struct {
	due  time.Time
	send func()
}

// line returns a queue whose packets are sent when due, in order. Its owner closes it.
func (n *Network) line() chan delivery {
	line := make(chan delivery, 4096)
	n.wg.Go(func() {
		for d := range line {
			if n.isCut() {
				continue
			}
			time.Sleep(time.Until(d.due))
			d.send()
		}
	})
	return line
}

func (n *Network) carry(line chan delivery, packet []byte, send func([]byte)) {
	n.mu.Lock()
	drop := n.mute || n.lose > 0 && n.rng.Float64() < n.lose
	delay := n.delay
	n.mu.Unlock()
	if drop {
		return
	}
	if delay == 0 {
		send(packet)
		return
	}
	kept := append([]byte(nil), packet...)
	select {
	case line <- delivery{time.Now().Add(delay), func() { send(kept) }}:
	default: // a full queue drops, as a router does
	}
}
