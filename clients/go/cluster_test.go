package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dlock/internal/testserver"

	"github.com/redis/go-redis/v9"
)

// startCluster starts three primaries, each with a third of the slots.
func startCluster(t *testing.T) (nodes []*testserver.Server, client *redis.ClusterClient) {
	addresses := []string{}
	for number := range 3 {
		nodes = append(nodes, startNode(t, nodes))
		addresses = append(addresses, nodes[number].Address)
		first, last := 16384*number/3, 16384*(number+1)/3-1
		if err := nodes[number].Client().ClusterAddSlotsRange(background, first, last).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		client := node.Client()
		testserver.Eventually(t, "the cluster is up", func() bool {
			info := client.ClusterInfo(background).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	t.Cleanup(func() { _ = client.Close() })
	return nodes, client
}

// startSmallCluster starts a cluster of one primary.
func startSmallCluster(t *testing.T) (*testserver.Server, *redis.ClusterClient) {
	node := startNode(t, nil)
	if err := node.Client().ClusterAddSlotsRange(background, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "the cluster is up", func() bool {
		return strings.Contains(node.Client().ClusterInfo(background).Val(), "cluster_state:ok")
	})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Address}})
	t.Cleanup(func() { _ = client.Close() })
	return node, client
}

// startNode starts a server that joins a cluster.
func startNode(t *testing.T, others []*testserver.Server) *testserver.Server {
	host, busPort, _ := net.SplitHostPort(testserver.FreeAddress(t))
	node := testserver.Start(t, "--cluster-enabled", "yes", "--cluster-port", busPort)
	_, port, _ := net.SplitHostPort(node.Address)
	for _, other := range others {
		if err := other.Client().Do(background, "CLUSTER", "MEET", host, port, busPort).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return node
}

func TestCluster_locks_are_waited_for_on_each_primary(t *testing.T) {
	nodes, client := startCluster(t)
	locker := newLocker(t, client)
	for number := range 30 {
		key := fmt.Sprint("k", number)
		_, held := lock(t, locker, key)
		granted := lockAndUnlock(locker, key)
		time.Sleep(5 * time.Millisecond)
		if err := held.Do(background, "SET", "{"+key+"}:d", 1).Err(); err != nil {
			t.Fatal(err)
		}
		unlock(t, held)
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		connections := strings.Count(node.Client().ClientList(background).Val(), "cmd=dlock")
		if node.Info("acquired") == "0" || connections > 3 { // one more is the client's own, for Do
			t.Fatal(node.Info("acquired"), connections)
		}
		node.HasNothing()
	}
}

func TestCluster_holder_and_waiter_follow_their_slot(t *testing.T) {
	nodes, client := startCluster(t)
	locker := newLocker(t, client)
	_, held := lock(t, locker, "k")
	granted := lockAndUnlock(locker, "k")
	slot := client.ClusterKeySlot(background, "k").Val()
	number := int(slot) * 3 / 16384
	from, to := nodes[number].Client(), nodes[(number+1)%3].Client()
	testserver.Eventually(t, "it waits", func() bool { return nodes[number].Info("waiters") == "1" })
	fromID, toID := from.Do(background, "CLUSTER", "MYID").Val(), to.Do(background, "CLUSTER", "MYID").Val()
	host, port, _ := net.SplitHostPort(nodes[(number+1)%3].Address)
	for _, step := range []*redis.Cmd{
		to.Do(background, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID),
		from.Do(background, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID),
		from.Do(background, "MIGRATE", host, port, "k", 0, 5000),
		to.Do(background, "CLUSTER", "SETSLOT", slot, "NODE", toID),
		from.Do(background, "CLUSTER", "SETSLOT", slot, "NODE", toID),
	} {
		if step.Err() != nil {
			t.Fatal(step)
		}
	}
	testserver.Eventually(t, "it waits there", func() bool { return nodes[(number+1)%3].Info("waiters") == "1" })
	unlock(t, held)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestCluster_slot_that_is_not_served_delays_no_other(t *testing.T) {
	node, client := startSmallCluster(t)
	server := node.Client()
	locker := newLocker(t, client)
	_, held := lock(t, locker, "k")
	unlock(t, held)
	slot := server.ClusterKeySlot(background, "unserved").Val()
	for _, step := range []*redis.Cmd{
		server.Do(background, "CONFIG", "SET", "cluster-require-full-coverage", "no"),
		server.Do(background, "CLUSTER", "DELSLOTS", slot),
	} {
		if step.Err() != nil {
			t.Fatal(step)
		}
	}
	granted := lockAndUnlock(locker, "unserved")
	testserver.Eventually(t, "it is refused", func() bool {
		return strings.Contains(server.Info(background, "errorstats").Val(), "CLUSTERDOWN")
	})
	ctx, stop := context.WithTimeout(background, time.Second)
	defer stop()
	for range 20 {
		_, held, err := locker.Lock(ctx, "k")
		if err != nil {
			t.Fatal("it is delayed:", err)
		}
		unlock(t, held)
	}
	if err := server.Do(background, "CLUSTER", "ADDSLOTS", slot).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestCluster_that_hangs_does_not_delay_the_end_of_a_context(t *testing.T) {
	node, client := startSmallCluster(t)
	locker := newLocker(t, client)
	node.Pause()
	defer node.Resume()
	ctx, cancel := context.WithCancel(background)
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	if _, _, err := locker.Lock(ctx, "k"); !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
		t.Fatal(err, time.Since(began))
	}
}

func TestCluster_clients_of_nodes_are_those_of_the_program(t *testing.T) {
	node, _ := startSmallCluster(t)
	// In the network of the program, it has another address.
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"outside:1"},
		NewClient: func(options *redis.Options) *redis.Client {
			options.Addr = node.Address
			return redis.NewClient(options)
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	_, held := lock(t, newLocker(t, client), "k")
	unlock(t, held)
}

func TestCluster_waiter_is_granted_by_the_new_primary(t *testing.T) {
	nodes, client := startCluster(t)
	primary := nodes[int(client.ClusterKeySlot(background, "k").Val())*3/16384]
	id := primary.Client().Do(background, "CLUSTER", "MYID").Val()
	replica := startNode(t, nodes)
	testserver.Eventually(t, "it has a replica", func() bool {
		return strings.Contains(replica.Client().ClusterInfo(background).Val(), "cluster_state:ok") &&
			replica.Client().Do(background, "CLUSTER", "REPLICATE", id).Err() == nil
	})
	testserver.Eventually(t, "the replica has synced", func() bool {
		return strings.Contains(replica.Client().Info(background, "replication").Val(), "master_link_status:up")
	})
	locker := newLocker(t, client)
	_, held := lock(t, locker, "k")
	granted := lockAndUnlock(locker, "k")
	testserver.Eventually(t, "it waits", func() bool { return primary.Info("waiters") == "1" })
	testserver.Eventually(t, "the lock is replicated", func() bool { return replica.Info("locks") == "1" })
	primary.Kill()
	if err := replica.Client().Do(background, "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, "it waits there", func() bool { return replica.Info("waiters") == "1" })
	// The client of the program has followed, too.
	if err := held.Do(background, "SET", "{k}:d", "1").Err(); err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

func TestSentinel_waiter_is_granted_by_the_new_primary(t *testing.T) {
	for _, isForced := range []bool{false, true} {
		t.Run(fmt.Sprint("forced: ", isForced), func(t *testing.T) {
			primary := testserver.Start(t)
			host, port, _ := net.SplitHostPort(primary.Address)
			replica := testserver.Start(t, "--replicaof", host+" "+port)
			testserver.Eventually(t, "the replica has synced", func() bool {
				return strings.Contains(replica.Client().Info(background, "replication").Val(), "master_link_status:up")
			})
			sentinel := startSentinel(t, host, port)
			options := redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{sentinel}}
			client := redis.NewFailoverClient(&options)
			t.Cleanup(func() { _ = client.Close() })
			locker := newLocker(t, client)
			ctx, held := lock(t, locker, "k")
			granted := lockAndUnlock(locker, "k")
			testserver.Eventually(t, "it waits", func() bool { return primary.Info("waiters") == "1" })
			sentinels := testserver.ClientOf(t, sentinel)
			testserver.Eventually(t, "the Sentinel knows the replica, which has the lock", func() bool {
				replicas := sentinels.Do(background, "SENTINEL", "REPLICAS", "locks").Val().([]any)
				return len(replicas) == 1 && replica.Info("locks") == "1"
			})
			if !isForced {
				primary.Kill()
			} else {
				testserver.Eventually(t, "the failover begins", func() bool {
					return sentinels.Do(background, "SENTINEL", "FAILOVER", "locks").Err() == nil
				})
			}
			testserver.Eventually(t, "it waits there", func() bool { return replica.Info("waiters") == "1" })
			// The former primary is demoted 8 s later, and grants locks until then.
			if isForced && !strings.Contains(primary.Client().Info(background, "replication").Val(), "role:master") {
				t.Fatal("it followed only when the former primary was demoted")
			}
			if ctx.Err() != nil {
				t.Fatal(context.Cause(ctx))
			}
			unlock(t, held)
			if err := <-granted; err != nil {
				t.Fatal(err)
			}
		})
	}
}

func startSentinel(t *testing.T, host, port string) (address string) {
	address = testserver.FreeAddress(t)
	_, ownPort, _ := net.SplitHostPort(address)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "port %s\nsentinel monitor locks %s %s 1\nsentinel down-after-milliseconds locks 500\n"
	text = fmt.Sprintf(text, ownPort, host, port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	process := exec.Command("redis-server", file, "--sentinel")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	client := testserver.ClientOf(t, address)
	testserver.Eventually(t, "the Sentinel starts", func() bool { return client.Ping(background).Err() == nil })
	return address
}
