// A consumer with franz-go that tells its partitions as the other programs here do.
//
// Arguments: HOST:PORT GROUP TOPIC STRATEGY OFFSET. TOPIC is an expression if it begins with ^, STRATEGY the name of an
// assignor, or "consumer" for a consumer group (KIP-848), OFFSET what it commits for each partition that it gets. It
// leaves the group at SIGTERM.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func tell(word string, partitions map[string][]int32) {
	fmt.Println("at", time.Now().UnixMilli())
	line := []string{word}
	for topic, indexes := range partitions {
		for _, index := range indexes {
			line = append(line, fmt.Sprintf("%s-%d", topic, index))
		}
	}
	fmt.Println(strings.Join(line, " "))
}

// What it has, as what it commits.
type holding struct {
	sync.Mutex
	offset  int64
	offsets map[string]map[int32]kgo.EpochOffset
	isNew   bool
}

func (held *holding) add(partitions map[string][]int32) {
	held.Lock()
	defer held.Unlock()
	for topic, indexes := range partitions {
		if held.offsets[topic] == nil {
			held.offsets[topic] = map[int32]kgo.EpochOffset{}
		}
		for _, index := range indexes {
			held.offsets[topic][index] = kgo.EpochOffset{Epoch: -1, Offset: held.offset}
			held.isNew = true
		}
	}
}

func (held *holding) remove(partitions map[string][]int32) {
	held.Lock()
	defer held.Unlock()
	for topic, indexes := range partitions {
		for _, index := range indexes {
			delete(held.offsets[topic], index)
		}
	}
}

// Returns what there is to commit, which is nothing if nothing has come since the last time.
func (held *holding) take() map[string]map[int32]kgo.EpochOffset {
	held.Lock()
	defer held.Unlock()
	taken := map[string]map[int32]kgo.EpochOffset{}
	if held.isNew {
		for topic, offsets := range held.offsets {
			taken[topic] = maps.Clone(offsets)
		}
	}
	held.isNew = false
	return taken
}

func (held *holding) retry() {
	held.Lock()
	defer held.Unlock()
	held.isNew = true
}

func options(args []string, held *holding) []kgo.Opt {
	settings := []kgo.Opt{
		kgo.SeedBrokers(args[0]),
		kgo.ConsumerGroup(args[1]),
		kgo.ConsumeTopics(args[2]),
		kgo.ClientID("franz-go"),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			tell("assigned", partitions)
			held.add(partitions)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			tell("revoked", partitions)
			held.remove(partitions)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			tell("lost", partitions)
			held.remove(partitions)
		}),
	}
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(), "consumer": kgo.StickyBalancer(),
	}
	settings = append(settings, kgo.Balancers(balancers[args[3]]))
	if args[3] == "consumer" {
		settings = append(settings, kgo.ServerSideBalancer())
	}
	if strings.HasPrefix(args[2], "^") {
		settings = append(settings, kgo.ConsumeRegex())
	}
	return settings
}

func commit(client *kgo.Client, held *holding) {
	offsets := held.take()
	if len(offsets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client.CommitOffsetsSync(ctx, offsets, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error,
	) {
		if err == nil {
			for _, topic := range response.Topics {
				for _, partition := range topic.Partitions {
					if err == nil {
						err = kerr.ErrorForCode(partition.ErrorCode)
					}
				}
			}
		}
		if err != nil {
			fmt.Println("refused", err)
			held.retry()
		} else {
			fmt.Println("committed")
		}
	})
}

func main() {
	offset, err := strconv.ParseInt(os.Args[5], 10, 64)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	held := &holding{offset: offset, offsets: map[string]map[int32]kgo.EpochOffset{}}
	stopping := make(chan os.Signal, 1)
	signal.Notify(stopping, syscall.SIGTERM)
	client, err := kgo.NewClient(options(os.Args[1:], held)...)
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		client.PollFetches(ctx)
		cancel()
		select {
		case <-stopping:
			client.Close()
			return
		default:
			commit(client, held)
		}
	}
}
