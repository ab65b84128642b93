// Package testserver starts servers with the module for tests, and proxies that cut connections to them.
package testserver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server with the module.
type Server struct {
	t       *testing.T
	Address string
	args    []string
	process *exec.Cmd
}

// Start starts a server with the module that DLOCK_MODULE names, by the program that DLOCK_SERVER may name.
func Start(t *testing.T, args ...string) *Server {
	t.Helper()
	module := os.Getenv("DLOCK_MODULE")
	if module == "" {
		t.Skip("DLOCK_MODULE does not name the module")
	}
	return StartWithoutModule(t, append([]string{"--loadmodule", module}, args...)...)
}

// StartWithoutModule starts a server without the module.
func StartWithoutModule(t *testing.T, args ...string) *Server {
	s := &Server{t: t, Address: FreeAddress(t)}
	_, port, _ := net.SplitHostPort(s.Address)
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--repl-diskless-sync-delay", "0"}, args...)
	s.Run()
	t.Cleanup(s.Kill)
	return s
}

// Run starts it, after Kill again.
func (s *Server) Run() {
	s.t.Helper()
	program := os.Getenv("DLOCK_SERVER")
	if program == "" {
		program = "redis-server"
	}
	s.process = exec.Command(program, s.args...)
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := s.Client()
	defer client.Close()
	Eventually(s.t, "the server starts", func() bool { return client.Ping(context.Background()).Err() == nil })
}

// Kill kills it.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// Pause has it hang until Resume.
func (s *Server) Pause() { _ = s.process.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.process.Process.Signal(syscall.SIGCONT) }

// Client returns a client that the test need not close.
func (s *Server) Client() *redis.Client { return ClientOf(s.t, s.Address) }

// ClientOf returns a client that the test need not close.
func ClientOf(t *testing.T, address string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Info returns a field of INFO dlock.
func (s *Server) Info(field string) string {
	s.t.Helper()
	client := s.Client()
	defer client.Close()
	text, err := client.Info(context.Background(), "dlock").Result()
	if err != nil {
		return err.Error()
	}
	for _, line := range strings.Fields(text) {
		if name, value, _ := strings.Cut(line, ":"); name == "dlock_"+field {
			return value
		}
	}
	s.t.Fatalf("no field %s in %s", field, text)
	return ""
}

// Calls returns how often a command was called.
func (s *Server) Calls(command string) int {
	s.t.Helper()
	text, err := s.Client().Info(context.Background(), "commandstats").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	_, stats, _ := strings.Cut(text, "cmdstat_"+command+":calls=")
	digits, _, _ := strings.Cut(stats, ",")
	calls, _ := strconv.Atoi(digits)
	return calls
}

// HasNothing waits until the server has no lock and no waiting request.
func (s *Server) HasNothing() {
	s.t.Helper()
	Eventually(s.t, "nothing is left", func() bool { return s.Info("locks") == "0" && s.Info("waiters") == "0" })
}

// FreeAddress returns an address on which nobody listens.
func FreeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Eventually waits for a condition.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
