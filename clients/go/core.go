package dlock

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The name of connections in CLIENT LIST, unless the program's client has one.
const connectionName = "dlock"

// Sentinels demote a primary that they replace 8 s later. go-redis closes its own connections to it, but not these.
const sentinelAddr, sentinelLifetime = "FailoverClient", 2 * time.Second

// A core is what all Lockers of one client share: requests and connections. It lives as long as the client, to which it
// does not refer.
type core struct {
	name        string      // how owners begin, and requests of owners that processes share
	isConnected atomic.Bool // there was a connection

	mu      sync.Mutex        // guards what follows, inboxes, and fields of entries
	entries map[string]*entry // by request id
	inboxes map[string]*inbox // by address
	last    uint64            // number of an entry
	tellsAt int64             // when the program may be told again that it waits
}

// cores has those of the clients that exist.
var cores struct {
	sync.Mutex
	of map[any]*core // by weak pointers to clients
}

// coreOf returns the core of a client, which is made for its first Locker.
func coreOf[Client any](client *Client) *core {
	cores.Lock()
	defer cores.Unlock()
	var key any = weak.Make(client)
	c := cores.of[key]
	if c == nil {
		c = &core{name: randomName(), entries: map[string]*entry{}, inboxes: map[string]*inbox{}}
		if cores.of == nil {
			cores.of = map[any]*core{}
		}
		cores.of[key] = c
		runtime.AddCleanup(client, forget, key)
	}
	return c
}

// forget ends the core of a client that is no more.
func forget(key any) {
	cores.Lock()
	c := cores.of[key]
	delete(cores.of, key)
	cores.Unlock()
	c.disconnectIfUnused()
}

// disconnectIfUnused closes the connections, unless there are requests.
func (c *core) disconnectIfUnused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) > 0 {
		return
	}
	for _, b := range c.inboxes {
		b.end()
		b.link.close()
	}
}

// inboxAt returns the inbox in the server to which the client connects.
func (c *core) inboxAt(client *redis.Client) *inbox {
	b := c.inboxes[client.Options().Addr]
	if b == nil {
		options := *client.Options()
		link := newLink(serverOf(&options), func() *redis.Client { return c.connect(options, requestTimeout) })
		b = &inbox{core: c, link: link, options: options, name: randomName()}
		c.inboxes[options.Addr] = b
	}
	return b
}

// serverOf returns what messages call the server of a client.
func serverOf(options *redis.Options) string {
	if options.Addr == sentinelAddr {
		return "the primary that the Sentinels name"
	}
	return options.Addr
}

// connect returns a client with one connection, which repeats nothing by itself.
func (c *core) connect(options redis.Options, timeout time.Duration) *redis.Client {
	options.PoolSize, options.MinIdleConns, options.PoolTimeout = 1, 0, time.Minute
	options.ReadTimeout, options.WriteTimeout = timeout, timeout
	options.MaxRetries, options.DialerRetries = -1, 1
	options.Limiter, options.PushNotificationProcessor = nil, nil
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if options.Addr == sentinelAddr {
		options.ConnMaxLifetime = sentinelLifetime
	}
	options.OnConnect = c.onConnect(options.ClientName == "", options.OnConnect)
	return redis.NewClient(&options)
}

// onConnect returns a hook that notes that there was a connection, and names it, in front of another hook. A user that
// may not set a name has none.
func (c *core) onConnect(setsName bool, next func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, connection *redis.Conn) error {
		c.isConnected.Store(true)
		if setsName {
			_ = connection.ClientSetName(ctx, connectionName).Err()
		}
		if next == nil {
			return nil
		}
		return next(ctx, connection)
	}
}

// enroll enters an entry into the table, before it is sent: its answer may overtake the reply.
func (c *core) enroll(e *entry) {
	c.last++
	number := strconv.FormatUint(c.last, 36)
	e.number, e.id = c.last, c.name+":"+number
	if e.owner == "" {
		e.owner = process + e.id
	}
	c.entries[e.id] = e
}

// waitingIn returns the entries that wait in an inbox, the oldest first.
func (c *core) waitingIn(b *inbox) []*entry {
	var waiting []*entry
	for _, e := range c.entries {
		if e.inbox == b && e.waits && !e.isSettled {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(x, y *entry) int { return cmp.Compare(x.number, y.number) })
	return waiting
}
