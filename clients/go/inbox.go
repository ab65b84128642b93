package dlock

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	requestTimeout = 3 * time.Second
	blockMs        = 2000 // how long GRANTS waits: less than an inbox lasts without it, 5 s
	answerTimeout  = blockMs*time.Millisecond + 2*time.Second
	// Sentinels demote a primary that they replace 8 s later. go-redis closes its own connections to it, but not these.
	sentinelAddr, sentinelLifetime = "FailoverClient", 2 * time.Second
)

// An inbox receives the answers of one primary. The mutex of the Locker guards it.
type inbox struct {
	locker    *Locker
	node      *redis.Client // whose options the reader uses
	name      string        // another one after NOINBOX
	cursor    int64         // 0: the server does not have it
	isRead    bool          // while somebody waits
	isOpening bool          // while those who wait are sent with this name
}

// connect returns a client with one connection to each server, which repeats nothing by itself.
func (l *Locker) connect() redis.UniversalClient {
	if client, isSingle := l.client.(*redis.Client); isSingle {
		return l.connectTo(client, requestTimeout)
	}
	options := *l.client.(*redis.ClusterClient).Options()
	options.Addrs = slices.Clone(options.Addrs) // to which a client appends
	options.PoolSize, options.MinIdleConns, options.PoolTimeout = 1, 0, time.Minute
	options.ReadTimeout, options.WriteTimeout = requestTimeout, requestTimeout
	options.MaxRedirects, options.DialerRetries, options.OnConnect = 1, 1, l.onConnect(options.OnConnect)
	return redis.NewClusterClient(&options)
}

func (l *Locker) connectTo(client *redis.Client, timeout time.Duration) *redis.Client {
	options := *client.Options()
	options.PoolSize, options.MinIdleConns, options.PoolTimeout = 1, 0, time.Minute
	options.ReadTimeout, options.WriteTimeout = timeout, timeout
	options.MaxRetries, options.DialerRetries, options.OnConnect = -1, 1, l.onConnect(options.OnConnect)
	options.Limiter, options.PushNotificationProcessor = nil, nil
	if options.Addr == sentinelAddr {
		options.ConnMaxLifetime = sentinelLifetime
	}
	return redis.NewClient(&options)
}

type hook = func(context.Context, *redis.Conn) error

// onConnect returns a hook that notes that there was a connection, in front of another one.
func (l *Locker) onConnect(next hook) hook {
	return func(ctx context.Context, connection *redis.Conn) error {
		if l.isConnected.Store(true); next == nil {
			return nil
		}
		return next(ctx, connection)
	}
}

// inboxOf returns the inbox in the server that has the key.
func (l *Locker) inboxOf(key string) (box *inbox, err error) {
	node, isSingle := l.requests.(*redis.Client)
	if !isSingle {
		node, err = l.requests.(*redis.ClusterClient).MasterForKey(context.Background(), key)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	address := node.Options().Addr
	if l.inboxes[address] == nil {
		l.inboxes[address] = &inbox{locker: l, node: node, name: randomName()}
	}
	return l.inboxes[address], nil
}

// reload has a client of a cluster find out which servers have which keys.
func (l *Locker) reload() {
	if cluster, isCluster := l.requests.(*redis.ClusterClient); isCluster {
		cluster.ReloadState(context.Background())
	}
}

// waiting returns the entries that wait here, the oldest first.
func (b *inbox) waiting() []*entry {
	var waiting []*entry
	for _, e := range b.locker.entries {
		if e.inbox == b && e.waits && !e.isSettled {
			waiting = append(waiting, e)
		}
	}
	slices.SortFunc(waiting, func(x, y *entry) int { return cmp.Compare(x.number, y.number) })
	return waiting
}

// renew replaces an inbox that has ended. Requests with its former name can then not be queued before older ones.
func (b *inbox) renew() { b.name, b.cursor, b.isOpening = randomName(), 0, true }

// listen reads it while somebody waits.
func (b *inbox) listen() {
	l, ctx := b.locker, context.Background()
	client := l.connectTo(b.node, answerTimeout)
	defer client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for pause := minPause; l.closing.Err() == nil; {
		name, isNew := b.name, b.cursor == 0
		command := []any{"DLOCK.GRANTS", name, b.cursor, "BLOCK", blockMs}
		if isNew {
			command = command[:3]
		}
		l.mu.Unlock()
		t := now()
		reply, err := client.Do(ctx, command...).Slice()
		l.mu.Lock()
		var answers []any
		if err != nil {
			b.failed(err)
			l.mu.Unlock()
			l.reload()
			time.Sleep(pause)
			l.mu.Lock()
			pause = min(2*pause, maxPause)
		} else {
			answers = reply[2].([]any)
			for _, answer := range answers {
				l.onAnswer(t, reply[1].(int64), answer.([]any))
			}
			if isNew {
				go b.open(name)
			}
			b.cursor, pause = reply[0].(int64), minPause
		}
		if len(answers) == 0 && len(b.waiting()) == 0 {
			break
		}
	}
	b.isRead, b.isOpening = false, false
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
			e.settle(err, false)
		}
	case isCluster: // where another server may have the lock now
		for _, e := range b.waiting() {
			go e.request()
		}
	}
}

// open sends all requests that wait, the oldest first.
func (b *inbox) open(name string) {
	l := b.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	for b.name == name && b.isOpening {
		unsent := slices.DeleteFunc(b.waiting(), func(e *entry) bool { return e.isQueued(name) })
		b.isOpening = len(unsent) > 0
		l.mu.Unlock()
		for _, e := range unsent {
			if !e.attempt(true) {
				time.Sleep(minPause)
				break
			}
		}
		l.mu.Lock()
	}
}

// onAnswer takes an answer to a call that was sent at t.
func (l *Locker) onAnswer(t, waitedMs int64, answer []any) {
	word, key, owner := answer[0].(string), answer[2].(string), answer[3].(string)
	number, _ := strconv.ParseUint(answer[1].(string), 10, 64)
	e := l.entries[number]
	isKnown := e != nil && e.key == key && e.owner == owner && (!e.isSettled || e.outcome == nil)
	switch {
	case isKnown && word == "granted":
		e.granted(t, answer[4].(int64), answer[6].(int64), waitedMs)
	case word == "granted":
		e := &entry{key: key, number: number, sends: 1, settings: settings{owner: owner}}
		if e.enroll(l) == nil {
			e.settle(ErrLost, false) // nobody waits for it
		}
	case isKnown && word == "error" && e.refused(answerError(answer[4].(string))):
	case isKnown && !e.isSettled:
		e.isRefused = true
		go e.request()
	}
}
