package testserver

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy forwards connections to a server, cuts them, and delays what passes.
type Proxy struct {
	Address string
	target  string
	delay   time.Duration          // of each direction
	cutAt   atomic.Pointer[string] // the connection is cut instead of the reply to a request with this text
	IsDown  atomic.Bool            // it accepts no connections

	mu          sync.Mutex
	connections map[net.Conn]bool
	refused     string // the next request with this text does not pass
	reply       string // but has this reply
}

// StartProxy starts a proxy of a server.
func StartProxy(t *testing.T, target string) *Proxy { return StartSlowProxy(t, target, 0) }

// StartSlowProxy starts a proxy over which a reply takes at least this long.
func StartSlowProxy(t *testing.T, target string, roundTrip time.Duration) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: listener.Addr().String(), target: target, delay: roundTrip / 2}
	p.connections = map[net.Conn]bool{}
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if p.IsDown.Load() {
				_ = client.Close()
			} else {
				go p.forward(client)
			}
		}
	}()
	return p
}

func (p *Proxy) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.connections[client] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.connections, client)
		p.mu.Unlock()
	}()
	var losesReply atomic.Bool
	go func() {
		defer server.Close()
		p.relay(client, func(piece []byte) bool {
			text := string(piece)
			if reply := p.refusal(text); reply != "" {
				_, err := client.Write([]byte(reply))
				return err == nil
			}
			if cut := p.cutAt.Load(); cut != nil && strings.Contains(text, *cut) && p.cutAt.CompareAndSwap(cut, nil) {
				losesReply.Store(true)
			}
			_, err := server.Write(piece)
			return err == nil
		})
	}()
	p.relay(server, func(piece []byte) bool {
		if losesReply.Load() {
			return false
		}
		_, err := client.Write(piece)
		return err == nil
	})
}

// relay passes on what arrives, each piece after the delay, until that fails.
func (p *Proxy) relay(from net.Conn, pass func(piece []byte) bool) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces, ends := make(chan piece, 1<<12), make(chan struct{})
	defer close(ends)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 1<<16)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case pieces <- piece{buffer[:n], time.Now().Add(p.delay)}:
			case <-ends:
				return
			}
		}
	}()
	for piece := range pieces {
		if time.Sleep(time.Until(piece.due)); !pass(piece.bytes) {
			return
		}
	}
}

// Refuse has the next request with this text, which must come alone, answered with an error instead of passed on.
func (p *Proxy) Refuse(text, err string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused, p.reply = text, "-"+err+"\r\n"
}

// HasRefused reports whether that has happened.
func (p *Proxy) HasRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused == ""
}

func (p *Proxy) refusal(text string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == "" || !strings.Contains(strings.ToUpper(text), p.refused) {
		return ""
	}
	p.refused = ""
	return p.reply
}

// LoseReply cuts a connection instead of passing on the reply to the next request that contains the text.
func (p *Proxy) LoseReply(text string) { p.cutAt.Store(&text) }

// HasLost reports whether that has happened.
func (p *Proxy) HasLost() bool { return p.cutAt.Load() == nil }

// Cut cuts all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for connection := range p.connections {
		_ = connection.Close()
	}
}
