// The loop of franz-go's README: each record is booked, offsets go by default.
//
//	franz_go BOOTSTRAP GROUP TOPIC OUTPUT PROTOCOL
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	seeds, group, topic, output := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
	)
	if err != nil {
		panic(err)
	}
	defer cl.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			panic(fmt.Sprint(errs))
		}
		iter := fetches.RecordIter()
		for !iter.Done() {
			record := &kgo.Record{Topic: output, Value: iter.Next().Value}
			if err := cl.ProduceSync(context.Background(), record).FirstErr(); err != nil {
				panic(err)
			}
		}
	}
}
