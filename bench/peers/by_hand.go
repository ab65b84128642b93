// by_hand PORT LOCKS prints in how many ms go-redis alone sends that many DLOCK.ACQUIREs, in a pipeline.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	locks, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	// It connects: a pipeline may have a connection of its own.
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() }); err != nil {
		log.Fatal(err)
	}
	began, names := time.Now(), make([]string, locks)
	pipeline := client.Pipeline()
	for number := range names {
		names[number] = fmt.Sprint("by-hand:", number)
		pipeline.Do(ctx, "DLOCK.ACQUIRE", names[number], names[number], 30_000, "REQID", number)
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(float64(time.Since(began).Microseconds()) / 1000)
	if err := client.Del(ctx, names...).Err(); err != nil {
		log.Fatal(err)
	}
}
