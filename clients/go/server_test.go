package dlock_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a redis-server with the module.
type server struct {
	t       *testing.T
	address string
	args    []string
	process *exec.Cmd
}

// start starts a server with the module that DLOCK_MODULE names, by the program that DLOCK_SERVER may name.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	module := os.Getenv("DLOCK_MODULE")
	if module == "" {
		t.Skip("DLOCK_MODULE does not name the module")
	}
	s := &server{t: t, address: freeAddress(t)}
	_, port, _ := net.SplitHostPort(s.address)
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--loadmodule", module}, args...)
	s.run()
	t.Cleanup(s.kill)
	return s
}

func (s *server) run() {
	s.t.Helper()
	program := os.Getenv("DLOCK_SERVER")
	if program == "" {
		program = "redis-server"
	}
	s.process = exec.Command(program, s.args...)
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := s.client()
	defer client.Close()
	eventually(s.t, "the server starts", func() bool { return client.Ping(context.Background()).Err() == nil })
}

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) pause()  { _ = s.process.Process.Signal(syscall.SIGSTOP) }
func (s *server) resume() { _ = s.process.Process.Signal(syscall.SIGCONT) }

// client returns a client that the test need not close.
func (s *server) client() *redis.Client { return clientOf(s.t, s.address) }

func clientOf(t *testing.T, address string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// info returns a field of INFO dlock.
func (s *server) info(field string) string {
	s.t.Helper()
	client := s.client()
	defer client.Close()
	text, err := client.Info(context.Background(), "dlock").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, line := range strings.Fields(text) {
		if name, value, _ := strings.Cut(line, ":"); name == "dlock_"+field {
			return value
		}
	}
	s.t.Fatalf("no field %s in %s", field, text)
	return ""
}

// hasNothing waits until the server has no lock and no waiting request.
func (s *server) hasNothing() {
	s.t.Helper()
	eventually(s.t, "nothing is left", func() bool { return s.info("locks") == "0" && s.info("waiters") == "0" })
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// proxy forwards connections to a server, and cuts them.
type proxy struct {
	address string
	target  string
	cutAt   atomic.Pointer[string] // the connection is cut instead of the reply to a request with this text

	mu          sync.Mutex
	connections map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), target: target, connections: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(client)
		}
	}()
	return p
}

func (p *proxy) forward(client net.Conn) {
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
		buffer := make([]byte, 1<<16)
		for {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if text := p.cutAt.Load(); text != nil && strings.Contains(string(buffer[:n]), *text) &&
				p.cutAt.CompareAndSwap(text, nil) {
				losesReply.Store(true)
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := server.Read(buffer)
		if err != nil || losesReply.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// loseReply cuts a connection instead of passing on the reply to the next request that contains the text.
func (p *proxy) loseReply(text string) { p.cutAt.Store(&text) }

func (p *proxy) hasLost() bool { return p.cutAt.Load() == nil }

// cut cuts all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for connection := range p.connections {
		_ = connection.Close()
	}
}
