// Programs that watch groups by reading __consumer_offsets: what they make of it, with the clients and the decoders
// that Burrow (sarama) and kminion (franz-go) use. Each test commits something, follows the topic, and tells the lag.
package followers

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	offsets      = "__consumer_offsets"
	transactions = "__transaction_state"
	patience     = 30 * time.Second
)

var bootstrap = os.Getenv("BOOTSTRAP")

type partition struct {
	group, topic string
	index        int32
}

func fresh(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	must(t, err)
	t.Cleanup(made.Close)
	return made
}

// until tries something again that a broker refuses at first: one that has just made a topic, or begun to coordinate.
func until(t *testing.T, ctx context.Context, try func() error) {
	t.Helper()
	for err := try(); err != nil; err = try() {
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// topicWith makes a topic with records in its partitions, so many in each.
func topicWith(t *testing.T, ctx context.Context, counts ...int) string {
	t.Helper()
	name := fresh("orders")
	made := client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	created, err := kadm.NewClient(made).CreateTopic(ctx, int32(len(counts)), 1, nil, name)
	must(t, err)
	must(t, created.Err)
	until(t, ctx, func() error { return ends(ctx, made, name) })
	for index, count := range counts {
		for range count {
			record := &kgo.Record{Topic: name, Partition: int32(index), Value: []byte("v")}
			must(t, made.ProduceSync(ctx, record).FirstErr())
		}
	}
	return name
}

func ends(ctx context.Context, made *kgo.Client, topic string) error {
	found, err := kadm.NewClient(made).ListEndOffsets(ctx, topic)
	if err == nil {
		err = found.Error()
	}
	return err
}

func commit(t *testing.T, ctx context.Context, group, topic string, at map[int32]int64) {
	t.Helper()
	wanted := kadm.Offsets{}
	for index, offset := range at {
		wanted.AddOffset(topic, index, offset, -1)
	}
	until(t, ctx, func() error {
		done, err := kadm.NewClient(client(t)).CommitOffsets(ctx, group, wanted)
		if err == nil {
			err = done.Error()
		}
		return err
	})
}

// Burrow's way: sarama, from the newest offset of each partition on, keys and values taken apart by hand.
func TestSaramaFollowsCommits(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic := topicWith(t, ctx, 10, 5)
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	connection, err := sarama.NewClient([]string{bootstrap}, config)
	must(t, err)
	defer connection.Close()
	consumer, err := sarama.NewConsumerFromClient(connection)
	must(t, err)
	defer consumer.Close()
	group := fresh("burrow")
	until(t, ctx, func() error { _, err := connection.Coordinator(group); return err })
	until(t, ctx, func() error { return ends(ctx, client(t), offsets) })
	must(t, connection.RefreshMetadata(offsets))
	indexes, err := connection.Partitions(offsets)
	must(t, err)
	found := make(chan *sarama.ConsumerMessage, 1000)
	for _, index := range indexes {
		follower, err := consumer.ConsumePartition(offsets, index, sarama.OffsetNewest)
		must(t, err)
		defer follower.AsyncClose()
		go func() {
			for message := range follower.Messages() {
				found <- message
			}
		}()
	}
	commit(t, ctx, group, topic, map[int32]int64{0: 7, 1: 5})
	lags := map[int32]int64{}
	for len(lags) < 2 {
		select {
		case <-ctx.Done():
			t.Fatalf("no commit was seen: %v", lags)
		case message := <-found:
			if committed, offset, ok := takenApart(message); ok && committed.group == group {
				end, err := connection.GetOffset(committed.topic, committed.index, sarama.OffsetNewest)
				must(t, err)
				lags[committed.index] = end - offset
			}
		}
	}
	if lags[0] != 3 || lags[1] != 0 {
		t.Fatalf("the lag is %v", lags)
	}
}

func takenApart(message *sarama.ConsumerMessage) (partition, int64, bool) {
	key, value := message.Key, message.Value
	if len(key) < 2 || binary.BigEndian.Uint16(key) > 1 || len(value) < 10 {
		return partition{}, 0, false
	}
	text := func(from []byte) (string, []byte) {
		size := 2 + int(binary.BigEndian.Uint16(from))
		return string(from[2:size]), from[size:]
	}
	group, rest := text(key[2:])
	topic, rest := text(rest)
	return partition{group, topic, int32(binary.BigEndian.Uint32(rest))}, int64(binary.BigEndian.Uint64(value[2:])), true
}

// kminion's way: franz-go, the whole topic from its start, until all that was there has been read.
func TestFranzReadsTheWholeTopic(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, group, gone := topicWith(t, ctx, 10, 5), fresh("kminion"), fresh("gone")
	for offset := int64(0); offset < 5; offset++ {
		commit(t, ctx, group, topic, map[int32]int64{0: offset, 1: offset})
	}
	commit(t, ctx, group, topic, map[int32]int64{0: 7})
	commit(t, ctx, gone, topic, map[int32]int64{0: 1})
	admin := kadm.NewClient(client(t))
	_, err := admin.DeleteGroups(ctx, gone)
	must(t, err)
	committed := map[partition]int64{}
	readAll(t, ctx, offsets, func(record *kgo.Record) {
		key := kmsg.NewOffsetCommitKey()
		if key.ReadFrom(record.Key) != nil || key.Version > 1 {
			return
		}
		at := partition{key.Group, key.Topic, key.Partition}
		if record.Value == nil {
			delete(committed, at)
			return
		}
		value := kmsg.NewOffsetCommitValue()
		must(t, value.ReadFrom(record.Value))
		committed[at] = value.Offset
	})
	newest, err := admin.ListEndOffsets(ctx, topic)
	must(t, err)
	lag := int64(0)
	for at, offset := range committed {
		if at.group == group {
			end, _ := newest.Lookup(at.topic, at.index)
			lag += end.Offset - offset
		} else if at.group == gone {
			t.Fatalf("a group that was deleted has committed %v", at)
		}
	}
	told, err := admin.Lag(ctx, group)
	must(t, err)
	if lag != 4 || told[group].Lag.Total() != lag {
		t.Fatalf("the lag is %d, and %d by what the coordinator says", lag, told[group].Lag.Total())
	}
}

func readAll(t *testing.T, ctx context.Context, topic string, take func(*kgo.Record)) {
	t.Helper()
	reader := client(t,
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	newest, err := kadm.NewClient(reader).ListEndOffsets(ctx, topic)
	must(t, err)
	must(t, newest.Error())
	missing := map[int32]int64{}
	newest.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			missing[end.Partition] = end.Offset
		}
	})
	for len(missing) > 0 {
		fetched := reader.PollFetches(ctx)
		must(t, fetched.Err())
		fetched.EachRecord(func(record *kgo.Record) {
			take(record)
			if record.Offset+1 >= missing[record.Partition] {
				delete(missing, record.Partition)
			}
		})
	}
}

// kminion's first question: which version of Kafka has these APIs?
func TestFranzGuessesTheVersion(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	told, err := kadm.NewClient(client(t)).ApiVersions(ctx)
	must(t, err)
	for _, broker := range told {
		if guess := broker.VersionGuess(); guess != "v4.4" {
			t.Fatalf("the version is taken for %s", guess)
		}
	}
}

// What transactions have become can be read, too.
func TestFranzReadsTransactions(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, id := topicWith(t, ctx, 0), fresh("writer")
	writer := client(t, kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	for _, outcome := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must(t, writer.BeginTransaction())
		must(t, writer.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr())
		must(t, writer.EndTransaction(ctx, outcome))
	}
	states := []kmsg.TransactionState{}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		states = states[:0]
		readAll(t, ctx, transactions, func(record *kgo.Record) {
			key := kmsg.NewTxnMetadataKey()
			must(t, key.ReadFrom(record.Key))
			if key.TransactionalID == id {
				value := kmsg.NewTxnMetadataValue()
				must(t, value.ReadFrom(record.Value))
				states = append(states, value.State)
			}
		})
		if last := len(states) - 1; last >= 0 && states[last] == kmsg.TransactionStateCompleteAbort {
			break // the coordinator may write its last word after it has answered
		}
	}
	wanted := []kmsg.TransactionState{
		kmsg.TransactionStateEmpty,
		kmsg.TransactionStateOngoing,
		kmsg.TransactionStatePrepareCommit,
		kmsg.TransactionStateCompleteCommit,
		kmsg.TransactionStateOngoing,
		kmsg.TransactionStatePrepareAbort,
		kmsg.TransactionStateCompleteAbort,
	}
	if fmt.Sprint(states) != fmt.Sprint(wanted) {
		t.Fatalf("the states were %v", states)
	}
}
