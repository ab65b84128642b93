// by_hand PORT LOCKS ROUNDS prints in how many ms go-redis alone sends that many DLOCK.ACQUIREs in the last round, in a
// pipeline.
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
	locks, rounds := number(os.Args[2]), number(os.Args[3])
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	names := make([]string, locks)
	for n := range names {
		names[n] = fmt.Sprint("by-hand:", n)
	}
	var took time.Duration
	for range rounds {
		began, pipeline := time.Now(), client.Pipeline()
		for n, name := range names {
			pipeline.Do(ctx, "DLOCK.ACQUIRE", name, name, 30_000, "REQID", n)
		}
		_, err := pipeline.Exec(ctx)
		took = time.Since(began)
		succeed(err)
		succeed(client.Del(ctx, names...).Err())
	}
	fmt.Println(float64(took.Microseconds()) / 1000)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	succeed(err)
	return n
}

func succeed(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
