package dlock_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"dlock"
	"dlock/internal/testserver"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func connections(client *redis.Client) int {
	return strings.Count(client.ClientList(background).Val(), "name=dlock ")
}

func TestResources_lockers_of_one_client_share_a_connection(t *testing.T) {
	server := testserver.Start(t)
	client, observer := server.Client(), server.Client()
	goroutines := runtime.NumGoroutine()
	for range 300 {
		_, held := lock(t, dlock.New(client), "k") // which is never closed
		unlock(t, held)
	}
	if count := connections(observer); count != 1 {
		t.Fatal(count, "connections")
	}
	if more := runtime.NumGoroutine() - goroutines; more > 5 {
		t.Fatal(more, "goroutines")
	}
}

func TestResources_of_clients_that_are_no_more_are_freed(t *testing.T) {
	server := testserver.Start(t)
	observer := server.Client()
	observer.Ping(background)
	goroutines := runtime.NumGoroutine()
	// Otherwise, go-redis itself has a goroutine for each client that is not closed.
	plain := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	for range 50 {
		client := redis.NewClient(&redis.Options{Addr: server.Address, MaintNotificationsConfig: plain})
		_, held := lock(t, dlock.New(client), "k")
		unlock(t, held)
		failing := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaintNotificationsConfig: plain})
		if _, _, err := dlock.New(failing).Lock(background, "k", dlock.WithTimeout(50*time.Millisecond)); err == nil {
			t.Fatal("it is acquired")
		}
	}
	testserver.Eventually(t, "they are freed", func() bool {
		runtime.GC()
		return connections(observer) == 0 && runtime.NumGoroutine() <= goroutines+2
	})
}

func TestResources_connection_that_is_not_used_is_closed_and_opened_again(t *testing.T) {
	dlock.SetIdleTimeout(t, 200*time.Millisecond)
	server := testserver.Start(t)
	observer := server.Client()
	locker := newLocker(t, server.Client())
	for range 2 {
		_, held := lock(t, locker, "k")
		if count := connections(observer); count != 1 {
			t.Fatal(count, "connections have the name of the library")
		}
		unlock(t, held)
		testserver.Eventually(t, "it is closed", func() bool { return connections(observer) == 0 })
	}
}

func TestResources_connections_keep_the_name_of_the_client(t *testing.T) {
	server := testserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address, ClientName: "shop"})
	defer client.Close()
	_, held := lock(t, newLocker(t, client), "k")
	if list := server.Client().ClientList(background).Val(); !strings.Contains(list, "name=shop ") || strings.Contains(list, "name=dlock ") {
		t.Fatal(list)
	}
	unlock(t, held)
}
