package dlock

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pause          = 100 * time.Millisecond // before a repetition
	requestTimeout = 3 * time.Second
	blockMs        = 2000 // how long GRANTS waits: less than an inbox lasts without it, 5 s
	answerTimeout  = blockMs*time.Millisecond + 2*time.Second
	// Sentinels demote a primary that they replace 8 s later. go-redis closes its own connections to it, but not these.
	sentinelAddr, sentinelLifetime = "FailoverClient", 2 * time.Second
)

// An inbox receives the answers of one primary, and sends it requests. The mutex of the Locker guards it.
type inbox struct {
	locker    *Locker
	node      *redis.Client // whose options the reader uses
	name      string        // another one after NOINBOX
	cursor    int64         // 0: the server does not have it
	isRead    bool          // while somebody waits
	unsent    []*entry      // what is to be sent, in the order of its numbers
	hasUnsent sync.Cond
}

// connect returns a client with one connection to each server, which repeats nothing by itself.
func (l *Locker) connect() redis.UniversalClient {
	if client, isSingle := l.client.(*redis.Client); isSingle {
		return redis.NewClient(l.optionsOf(client.Options(), requestTimeout))
	}
	options := *l.client.(*redis.ClusterClient).Options()
	options.Addrs = slices.Clone(options.Addrs) // to which a client appends
	options.MaxRedirects = 1
	newClient := options.NewClient // the program may have its own
	options.NewClient = func(node *redis.Options) *redis.Client { return newClient(l.optionsOf(node, requestTimeout)) }
	return redis.NewClusterClient(&options)
}

// optionsOf returns options for one connection to a server. The Locker learns that there was one.
func (l *Locker) optionsOf(server *redis.Options, timeout time.Duration) *redis.Options {
	options := *server
	options.PoolSize, options.MinIdleConns, options.PoolTimeout = 1, 0, time.Minute
	options.ReadTimeout, options.WriteTimeout = timeout, timeout
	options.MaxRetries, options.DialerRetries = -1, 1
	options.OnConnect = func(ctx context.Context, connection *redis.Conn) error {
		l.isConnected.Store(true)
		if server.OnConnect == nil {
			return nil
		}
		return server.OnConnect(ctx, connection)
	}
	options.Limiter, options.PushNotificationProcessor = nil, nil
	if options.Addr == sentinelAddr {
		options.ConnMaxLifetime = sentinelLifetime
	}
	return &options
}

// loadTopology waits until a client of a cluster knows which servers have which keys, which go-redis does not end with
// ctx.
func (l *Locker) loadTopology(ctx context.Context, key string) error {
	cluster, isCluster := l.requests.(*redis.ClusterClient)
	if !isCluster {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		_, err := cluster.MasterForKey(context.Background(), key)
		done <- err
	}()
	return await(ctx, done)
}

// inboxOf returns the inbox in the server that has the key. In a cluster it unlocks the mutex meanwhile.
func (l *Locker) inboxOf(key string) (box *inbox, err error) {
	node, isSingle := l.requests.(*redis.Client)
	if !isSingle {
		l.mu.Unlock()
		node, err = l.requests.(*redis.ClusterClient).MasterForKey(context.Background(), key)
		l.mu.Lock()
	}
	if err != nil {
		return nil, err
	}
	address := node.Options().Addr
	if l.inboxes[address] == nil {
		l.inboxes[address] = &inbox{locker: l, node: node, name: randomName(), hasUnsent: sync.Cond{L: &l.mu}}
		go l.inboxes[address].send()
	}
	return l.inboxes[address], nil
}

// pause passes time before a repetition.
func (l *Locker) pause() {
	l.mu.Unlock()
	time.Sleep(pause)
	l.mu.Lock()
}

// reload has a client of a cluster find out which servers have which keys.
func (l *Locker) reload() {
	if cluster, isCluster := l.requests.(*redis.ClusterClient); isCluster {
		cluster.ReloadState(context.Background())
	}
}

// enqueue has an entry sent, the oldest first.
func (b *inbox) enqueue(entries ...*entry) {
	for _, e := range entries {
		place, isQueued := slices.BinarySearchFunc(b.unsent, e, byNumber)
		if !isQueued {
			b.unsent = slices.Insert(b.unsent, place, e)
		}
	}
	b.hasUnsent.Signal()
}

func byNumber(x, y *entry) int { return cmp.Compare(x.number, y.number) }

// send sends one entry after the other, until Close. After an error about one slot, the others are sent meanwhile.
func (b *inbox) send() {
	l := b.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.isClosed {
		if len(b.unsent) == 0 {
			b.hasUnsent.Wait()
			continue
		}
		e := b.unsent[0]
		b.unsent = b.unsent[1:]
		if err := e.send(b); isOfSlot(err) {
			e.sendAfter(time.Duration(min(e.sends, 10)) * pause)
		} else if err != nil {
			b.enqueue(e)
			l.pause()
		}
	}
}

// waiting returns the entries that wait here, the oldest first.
func (b *inbox) waiting() []*entry {
	var waiting []*entry
	for _, e := range b.locker.entries {
		if e.inbox == b && e.waits && e.fence == 0 && e.over == nil {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, byNumber)
	return waiting
}

// renew replaces an inbox that has ended. Requests with its former name can then not be queued before older ones.
func (b *inbox) renew() { b.name, b.cursor = randomName(), 0 }

// listen reads it while somebody waits.
func (b *inbox) listen() {
	l := b.locker
	client := redis.NewClient(l.optionsOf(b.node.Options(), answerTimeout))
	defer client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.isClosing {
		isNew := b.cursor == 0
		command := []any{"DLOCK.GRANTS", b.name, b.cursor, "BLOCK", blockMs}
		if isNew {
			command = command[:3]
		}
		l.mu.Unlock()
		t := now()
		reply, err := client.Do(context.Background(), command...).Slice()
		l.mu.Lock()
		var answers []any
		if err == nil {
			b.cursor, answers = reply[0].(int64), reply[2].([]any)
			for _, answer := range answers {
				b.onAnswer(t, reply[1].(int64), answer.([]any))
			}
			if isNew {
				b.enqueue(b.waiting()...)
			}
		} else {
			b.failed(err)
			l.reload()
			l.pause()
		}
		if len(answers) == 0 && len(b.waiting()) == 0 {
			break
		}
	}
	b.isRead = false
}

// failed takes an error instead of answers. Unless the inbox has ended, the same call is made again.
func (b *inbox) failed(err error) {
	word := wordOf(err)
	_, isCluster := b.locker.requests.(*redis.ClusterClient)
	switch {
	case word == "NOINBOX", word == "BUSYINBOX":
		b.renew()
	case !b.locker.isTransient(word):
		for _, e := range b.waiting() {
			e.abandon(err)
		}
	case isCluster: // where another server may have the lock now
		b.enqueue(b.waiting()...)
	}
}

// onAnswer takes an answer to a call that was sent at t.
func (b *inbox) onAnswer(t, waitedMs int64, answer []any) {
	l, word, key, owner := b.locker, answer[0].(string), answer[2].(string), answer[3].(string)
	number, _ := strconv.ParseUint(answer[1].(string), 10, 64)
	e := l.entries[number]
	switch {
	case l.isClosing: // all is given back
	case word == "granted" && e == nil: // nobody waits for it
		e = &entry{settings: settings{owner: owner}, locker: l, key: key, number: number, sends: 1, over: ErrLost}
		e.until = now() + int64(giveBackTimeout)
		l.enter(e, b)
	case word == "granted":
		e.hasCopies = e.hasCopies || e.over != nil // to be released once more
		e.granted(t, answer[4].(int64), answer[6].(int64), waitedMs)
	case e == nil || e.over != nil || e.fence != 0:
	case word == "error" && e.failed(answerError(answer[4].(string))) != nil:
		b.enqueue(e)
	case word == "timeout", word == "withdrawn":
		e.abandon(answerError(word))
	}
}
